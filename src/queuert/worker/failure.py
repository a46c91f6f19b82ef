"""What is recorded of an attempt that failed."""

from __future__ import annotations

import traceback
from typing import Any

import msgspec

from queuert.errors import JobError

MAX_TEXT = 10_000

UNHANDLED_ERROR = "UNHANDLED_ERROR"
SERIALIZATION_ERROR = "SERIALIZATION_ERROR"
RESOLUTION_ERROR = "RESOLUTION_ERROR"
TIMEOUT = "TIMEOUT"
LEASE_EXPIRED = "LEASE_EXPIRED"
EXPIRED = "EXPIRED"


def code_of(error: BaseException) -> str:
    return error.code if isinstance(error, JobError) else UNHANDLED_ERROR


def record(code: str, message: str) -> bytes:
    """An error record that has no exception behind it."""
    return _encode(code, None, message, None)


def record_of(error: BaseException, code: str | None = None) -> bytes:
    """The record of an exception. Never raises, whatever the exception does when it is looked at."""
    return _encode(code or code_of(error), type(error).__qualname__, _message(error), _traceback(error))


def _encode(code: str, type_name: str | None, message: str, trace: str | None) -> bytes:
    fields: dict[str, Any] = {"code": _clean(code), "type": type_name, "message": _clean(message)}
    fields["traceback"] = None if trace is None else _clean(trace, keep_end=True)
    return msgspec.json.encode(fields)


def _clean(text: str, *, keep_end: bool = False) -> str:
    """Text that every adapter can store. The end of a traceback is the part that tells."""
    text = text.replace("\0", "\\0").encode(errors="backslashreplace").decode()
    if len(text) <= MAX_TEXT:
        return text
    return "…" + text[-MAX_TEXT + 1 :] if keep_end else text[: MAX_TEXT - 1] + "…"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as problem:
        return f"<the message of this error cannot be shown: str() raised {type(problem).__name__}>"


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except BaseException as problem:
        return f"<the traceback of this error cannot be shown: {type(problem).__name__}>"
