"""Errors of MongoDB's client and server, translated into errors of skitter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    InvalidURI,
    NetworkTimeout,
    OperationFailure,
    PyMongoError,
    WriteConcernError,
)

from skitter._utils.backoff import Unavailable
from skitter.errors import StoreError
from skitter.secrets import output_variable

_DUPLICATE = 11000
_REFUSES_LOGIN = {18, 8000}
_NOT_ALLOWED = 13
_VARIABLE = output_variable("mongodb")


def write_errors(error: BulkWriteError) -> list[dict[str, Any]]:
    """Return the errors of single documents. Raises :class:`Unavailable` if the failure has another reason."""
    details = error.details or {}
    problems: list[dict[str, Any]] = details.get("writeErrors", [])
    if not problems:
        raise Unavailable(one_line(str(details.get("writeConcernErrors") or error))) from error
    return problems


def is_taken(problem: Mapping[str, Any]) -> bool:
    """Return whether the id exists already, as opposed to a violation of another unique index of the user's."""
    if problem.get("code") != _DUPLICATE:
        return False
    key = problem.get("keyPattern")
    return "_id" in key if key else "_id_" in str(problem.get("errmsg"))


def one_line(text: object) -> str:
    """Return an error's text on one line, of at most 500 characters."""
    return " ".join(str(text).split())[:500]


@contextmanager
def translated_errors(name: str) -> Iterator[None]:
    """Translate errors of the output ``name``.

    Raises :class:`Unavailable` for errors that may be temporary, and :class:`~skitter.errors.StoreError` with a
    remedy for all others.
    """
    try:
        yield
    except (InvalidURI, ConfigurationError, ValueError, TypeError) as error:
        raise StoreError(
            f"output {name}: {one_line(error)}",
            remedy="correct the URL; write options of MongoDB after '?'"
            f"; the password can be set with {_VARIABLE} instead",
        ) from error
    except (ConnectionFailure, NetworkTimeout, WriteConcernError) as error:
        raise Unavailable(one_line(str(error).partition(", Timeout:")[0])) from error
    except OperationFailure as error:
        raise _operation_failed(name, error) from error
    except PyMongoError as error:
        raise StoreError(
            f"{name}: {one_line(error)}", remedy="fix the cause, then run the same command again"
        ) from error


def _operation_failed(name: str, error: OperationFailure) -> Exception:
    text = one_line(str(error).partition(", full error")[0])
    if error.code in _REFUSES_LOGIN:
        return StoreError(
            f"{name} refuses the user or the password",
            remedy=f"set {_VARIABLE}, or write mongodb://USER:PASSWORD@HOST/DATABASE/COLLECTION; add ?authSource=DATABASE if the user is defined in another database",
        )
    if error.code == _NOT_ALLOWED:
        return StoreError(f"{name}: {text}", remedy="grant the user the role readWrite on the database")
    if error.has_error_label("RetryableWriteError") or error.timeout:
        return Unavailable(text)
    return StoreError(f"{name}: {text}", remedy="fix the cause, then run the same command again")
