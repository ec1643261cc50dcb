"""What MongoDB's client and server complain of, in words and errors of ours."""

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
    """Return what is wrong with documents. Raises :class:`Unavailable` if it is something else."""
    details = error.details or {}
    problems: list[dict[str, Any]] = details.get("writeErrors", [])
    if not problems:
        raise Unavailable(one_line(str(details.get("writeConcernErrors") or error))) from error
    return problems


def is_taken(problem: Mapping[str, Any]) -> bool:
    """Tell whether it is the id that is there already, and not another unique key of the user's."""
    if problem.get("code") != _DUPLICATE:
        return False
    key = problem.get("keyPattern")
    return "_id" in key if key else "_id_" in str(problem.get("errmsg"))


def one_line(text: object) -> str:
    """Return an error's text for a dead letter: one line, of at most 500 characters."""
    return " ".join(str(text).split())[:500]


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Turn what goes wrong with the output ``name`` into errors of ours.

    Raises :class:`Unavailable` for what may pass by itself, and :class:`~skitter.errors.StoreError` with a remedy
    for the rest.
    """
    try:
        yield
    except (InvalidURI, ConfigurationError, ValueError, TypeError) as error:
        raise StoreError(
            f"output {name}: {one_line(error)}",
            remedy="correct the URL; after '?' stand options of MongoDB"
            f"; a password may also stand in {_VARIABLE}",
        ) from error
    except (ConnectionFailure, NetworkTimeout, WriteConcernError) as error:
        raise Unavailable(one_line(str(error).partition(", Timeout:")[0])) from error
    except OperationFailure as error:
        raise _operation_failed(name, error) from error
    except PyMongoError as error:
        raise StoreError(
            f"{name}: {one_line(error)}", remedy="see to the cause, then run the same command again"
        ) from error


def _operation_failed(name: str, error: OperationFailure) -> Exception:
    text = one_line(str(error).partition(", full error")[0])
    if error.code in _REFUSES_LOGIN:
        return StoreError(
            f"{name} refuses the user or the password",
            remedy=f"set {_VARIABLE}, or write mongodb://USER:PASSWORD@HOST/DATABASE/COLLECTION; with ?authSource=DATABASE where the user is kept elsewhere",
        )
    if error.code == _NOT_ALLOWED:
        return StoreError(f"{name}: {text}", remedy="give the user the role readWrite on the database")
    if error.has_error_label("RetryableWriteError") or error.timeout:
        return Unavailable(text)
    return StoreError(f"{name}: {text}", remedy="see to the cause, then run the same command again")
