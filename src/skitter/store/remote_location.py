"""Locations on S3 and other file systems that fsspec supports, and the errors of these systems."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import fsspec
import msgspec

from skitter._utils.backoff import Unavailable
from skitter._utils.visible import one_line
from skitter.errors import StoreError
from skitter.store.merge import Format

_IN_BUCKETS = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"}
_NO_CREDENTIALS = {
    "NoCredentialsError",
    "PartialCredentialsError",
    "ProfileNotFound",
    "DefaultCredentialsError",
}
_BAD_OPTIONS = {"ParamValidationError", "UnknownServiceError", "InvalidRegionError", "UnknownRegionError"}


class RemoteLocation(msgspec.Struct, frozen=True):
    """The location of an output on a remote file system."""

    protocol: str
    path: str
    """For a bucket: the bucket and the key."""
    format: Format = Format()
    options: dict[str, str] = {}
    """Options of the file system, such as ``endpoint_url``, ``key``, ``secret``, ``profile`` and ``anon`` of s3fs."""

    @property
    def name(self) -> str:
        """The name for messages: without the options, which may contain a secret."""
        return f"{self.protocol}://{self.path}"

    @property
    def is_bucket(self) -> bool:
        """Whether the location is in a bucket, where folders are only name prefixes."""
        return self.protocol in _IN_BUCKETS

    @property
    def root(self) -> str:
        """The bucket or folder that must exist already."""
        return self.path.partition("/")[0] if self.is_bucket else self.path.rpartition("/")[0]

    def parts_of(self, job: str) -> str:
        """Return the folder of a job's parts, which is next to the file."""
        return f"{self.path}.parts/{job}"

    def connect(self) -> Any:
        """Return the file system. All outputs of a process share it: creating an S3 client takes half a second.

        The call blocks, so run it in a thread. Raises the errors of :meth:`translated_errors`.
        """
        with self.translated_errors():
            return _connect(self.protocol, tuple(self.options.items()))

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Turn errors of the file system into :class:`~skitter.errors.StoreError` or :class:`Unavailable`."""
        try:
            yield
        except StoreError:
            raise
        except ImportError as error:
            raise StoreError(
                f"output {self.name} needs a package that is not installed: {error}",
                remedy='in the clone of skitter: pip install ".[s3]"'
                if self.protocol in {"s3", "s3a"}
                else "install it with pip",
            ) from error
        except PermissionError as error:
            raise StoreError(
                f"{self.name}: access denied: {error}", remedy="check the keys and their permissions"
            ) from error
        except FileNotFoundError as error:
            raise StoreError(
                f"{self.name}: {error}", remedy="create the bucket or folder, or choose another one"
            ) from error
        except Exception as error:
            raise self._other(error) from error

    def _other(self, error: Exception) -> Exception:
        text = one_line(error)
        kind = type(error).__name__
        if kind in _NO_CREDENTIALS:
            return StoreError(
                f"{self.name}: {text}",
                remedy="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or SKITTER_OUTPUT_S3_KEY and ..._SECRET, or a profile",
            )
        if isinstance(error, (TypeError, ValueError, NotImplementedError)) or kind in _BAD_OPTIONS:
            return StoreError(f"{self.name}: {text}", remedy="correct the name or the options after '?'")
        return Unavailable(text)


@cache
def _connect(protocol: str, options: tuple[tuple[str, str], ...]) -> Any:
    arguments: dict[str, Any] = {name: _typed(text) for name, text in options}
    if protocol in {"s3", "s3a"}:
        arguments["config_kwargs"] = {"retries": {"total_max_attempts": 1}}  # the stores retry themselves
    files = fsspec.filesystem(protocol, skip_instance_cache=True, use_listings_cache=False, **arguments)
    if protocol in {"s3", "s3a"}:
        files.retries = 1
    return files


def _typed(text: str) -> Any:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    return int(text) if text.isdecimal() and len(text) < 10 else text
