"""RemoteLocation: a file on S3 or another file system that fsspec knows, and what it says when it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import fsspec
import msgspec

from skitter._utils.backoff import Unavailable
from skitter.errors import StoreError
from skitter.store.merge import Format

_IN_BUCKETS = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"}
_AGAIN = "see to the cause, then run the same command again: nothing that was committed is lost"
_NO_CREDENTIALS = {
    "NoCredentialsError",
    "PartialCredentialsError",
    "ProfileNotFound",
    "DefaultCredentialsError",
}
_BAD_OPTIONS = {"ParamValidationError", "UnknownServiceError", "InvalidRegionError", "UnknownRegionError"}


class RemoteLocation(msgspec.Struct, frozen=True):
    """Where an output lies."""

    protocol: str
    path: str
    """For a bucket: bucket and key."""
    form: Format
    options: dict[str, str] = {}
    """For the file system: ``endpoint_url``, ``key``, ``secret``, ``profile``, ``anon`` ... of s3fs, say."""

    @property
    def name(self) -> str:
        """For people: without the options, which may hold a secret."""
        return f"{self.protocol}://{self.path}"

    @property
    def is_bucket(self) -> bool:
        """Whether it lies in a bucket, where folders are mere names."""
        return self.protocol in _IN_BUCKETS

    @property
    def root(self) -> str:
        """What must exist before: the bucket, or the folder."""
        return self.path.partition("/")[0] if self.is_bucket else self.path.rpartition("/")[0]

    def parts_of(self, job: str) -> str:
        """Return the folder of a job's parts, beside the file."""
        return f"{self.path}.parts/{job}"

    def connect(self) -> Any:
        """Return the file system, one for all outputs of a process: a client of S3 takes half a second to make.

        It blocks, so it is for a thread of its own. Raises as :meth:`explained` does.
        """
        with self.explained():
            return _connect(self.protocol, tuple(self.options.items()))

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn what a file system raises into :class:`~skitter.errors.StoreError` or :class:`Unavailable`."""
        try:
            yield
        except StoreError:
            raise
        except ImportError as error:
            raise StoreError(
                f"output {self.name} needs a package that is missing: {error}",
                remedy='pip install "skitter[s3]"' if self.protocol in {"s3", "s3a"} else "install it",
            ) from error
        except PermissionError as error:
            raise StoreError(
                f"{self.name}: access is refused: {error}", remedy="check the keys and what they allow"
            ) from error
        except FileNotFoundError as error:
            raise StoreError(
                f"{self.name}: {error}", remedy="create the bucket or folder, or name another one"
            ) from error
        except Exception as error:
            raise self._other(error) from error

    def _other(self, error: Exception) -> Exception:
        text = " ".join(str(error).split()) or type(error).__name__
        kind = type(error).__name__
        if kind in _NO_CREDENTIALS:
            return StoreError(
                f"{self.name}: {text}",
                remedy="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or SKITTER_OUTPUT_S3_KEY and ..._SECRET, or a profile",
            )
        if isinstance(error, (TypeError, ValueError, NotImplementedError)) or kind in _BAD_OPTIONS:
            return StoreError(f"{self.name}: {text}", remedy="correct the name, and the options after '?'")
        return Unavailable(text)


@cache
def _connect(protocol: str, options: tuple[tuple[str, str], ...]) -> Any:
    given: dict[str, Any] = {name: _typed(text) for name, text in options}
    if protocol in {"s3", "s3a"}:
        given["config_kwargs"] = {"retries": {"total_max_attempts": 1}}  # we have patience ourselves
    files = fsspec.filesystem(protocol, skip_instance_cache=True, use_listings_cache=False, **given)
    if protocol in {"s3", "s3a"}:
        files.retries = 1
    return files


def _typed(text: str) -> Any:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    return int(text) if text.isdecimal() and len(text) < 10 else text


def failed(place: RemoteLocation, error: Unavailable) -> StoreError:
    """Return what to say when the service is away and there is no time to wait."""
    return StoreError(f"{place.name} cannot be reached: {error}", remedy=_AGAIN)
