"""What is recorded of an attempt that failed."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from queuert.errors import JobError

logger = logging.getLogger("queuert.worker")

MAX_TEXT = 10_000

UNHANDLED_ERROR = "UNHANDLED_ERROR"
SERIALIZATION_ERROR = "SERIALIZATION_ERROR"
TIMEOUT = "TIMEOUT"
LEASE_EXPIRED = "LEASE_EXPIRED"
EXPIRED = "EXPIRED"
ATTEMPTS_EXHAUSTED = "ATTEMPTS_EXHAUSTED"


class _WithCode(msgspec.Struct):
    code: str | None = None


_with_code = msgspec.json.Decoder(_WithCode)


def code_of(error: BaseException) -> str:
    # A subclass may have its own __init__, and forget the code there.
    code: object = getattr(error, "code", None) if isinstance(error, JobError) else None
    return code if isinstance(code, str) and code else UNHANDLED_ERROR


def code_in(record: bytes | None) -> str | None:
    """The code of a stored error record; None if there is none."""
    try:
        return None if record is None else _with_code.decode(record).code
    except msgspec.DecodeError:
        return None


def log(error: BaseException, message: str, *args: object, extra: Mapping[str, object]) -> None:
    """Log a failed attempt.

    An error that cannot be formatted (nested too deep, for example) must not keep the job from
    being settled.
    """
    try:
        logger.warning(message, *args, exc_info=error, extra=extra)
    except Exception:
        with suppress(Exception):
            logger.warning(message, *args, extra=extra)


def record(code: str, message: str) -> bytes:
    """An error record that has no exception behind it."""
    return _encode(code, None, message, None)


def record_of(error: BaseException, code: str | None = None) -> bytes:
    """The record of an exception.

    Never raises, even if the exception's own methods do.
    """
    try:
        return _encode(code or code_of(error), type(error).__qualname__, _message(error), _traceback(error))
    except Exception as problem:
        return record(code or UNHANDLED_ERROR, f"<this error cannot be shown: {type(problem).__name__}>")


def _encode(code: str, type_name: str | None, message: str, trace: str | None) -> bytes:
    fields: dict[str, Any] = {
        "code": _clean(code),
        "type": None if type_name is None else _clean(type_name),
        "message": _clean(message),
        "traceback": None if trace is None else _clean(trace, keep_end=True),
    }
    return msgspec.json.encode(fields)


def _clean(text: str, *, keep_end: bool = False) -> str:
    """Text that every adapter can store.

    With `keep_end`, long text is cut at the start: the end of a traceback is the useful part.
    """
    # Called on `str` itself: __str__ may return an instance of a subclass of str.
    text = str.replace(text, "\0", "\\0").encode(errors="backslashreplace").decode()
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
