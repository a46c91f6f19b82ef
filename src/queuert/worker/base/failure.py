"""What is recorded of an attempt that failed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from queuert.errors import JobError, QueuertError
from queuert.worker.base.error_attributes import json_attributes
from queuert.worker.base.error_text import MAX_TEXT, head, is_long, tail, traceback_of

logger = logging.getLogger("queuert.worker")

MAX_PLAIN = 500
"""Characters of each text in a record that was refused before."""

UNHANDLED_ERROR = "UNHANDLED_ERROR"
SERIALIZATION_ERROR = "SERIALIZATION_ERROR"
INVALID_OUTPUT = "INVALID_OUTPUT"
TIMEOUT = "TIMEOUT"
LEASE_EXPIRED = "LEASE_EXPIRED"
EXPIRED = "EXPIRED"
ATTEMPTS_EXHAUSTED = "ATTEMPTS_EXHAUSTED"


class _WithCode(msgspec.Struct):
    code: str | None = None


_with_code = msgspec.json.Decoder(_WithCode)


class _Shortest(msgspec.Struct):
    code: str | None = None
    type: str | None = None
    message: str | None = None


_shortest = msgspec.json.Decoder(_Shortest)


def code_of(error: BaseException) -> str:
    # A subclass may have its own __init__, and forget the code there.
    code: object = getattr(error, "code", None) if isinstance(error, JobError) else None
    return code if isinstance(code, str) and code else UNHANDLED_ERROR


def code_of_result(error: Exception) -> str:
    """The code if what a handler returned could not be made into a settlement. Our own errors say
    that the value is wrong. Others come from functions of the user, such as `generate_id`, and may
    pass.
    """
    return INVALID_OUTPUT if isinstance(error, QueuertError) else SERIALIZATION_ERROR


def code_in(record: bytes | None) -> str | None:
    """The code of a stored error record; None if there is none."""
    try:
        return None if record is None else _with_code.decode(record).code
    except msgspec.DecodeError:
        return None


def log(error: BaseException, message: str, *args: object, extra: Mapping[str, object]) -> None:
    """Log a failed attempt.

    An error that cannot be formatted (nested too deep, for example) must not keep the job from
    being settled. A very long one must not keep the event loop busy: its end is logged.
    """
    try:
        if _is_long(error):
            with_traceback = f"{message}\n%s"
            logger.warning(with_traceback, *args, _traceback(error), extra=extra)
        else:
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
        attributes = _attributes(error)
        return _encode(code or code_of(error), type(error).__qualname__, _message(error), _traceback(error), attributes)
    except Exception as problem:
        return record(code or UNHANDLED_ERROR, f"<this error cannot be shown: {type(problem).__name__}>")


def plain(stored: bytes) -> bytes:
    """What is left of a record that a database refused: its code, its type and the beginning of its
    message, in ASCII."""
    try:
        fields = _shortest.decode(stored)
    except msgspec.DecodeError:
        fields = _Shortest()
    return _encode(_ascii(fields.code), _ascii(fields.type) or None, _ascii(fields.message), None)


def _ascii(text: str | None) -> str:
    return (text or "").encode("ascii", "backslashreplace").decode()[:MAX_PLAIN]


def _encode(
    code: str, type_name: str | None, message: str, trace: str | None, attributes: Mapping[str, Any] | None = None
) -> bytes:
    fields: dict[str, Any] = {
        "code": _clean(code),
        "type": None if type_name is None else _clean(type_name),
        "message": _clean(message),
        "traceback": None if trace is None else _clean(trace, keep_end=True),
    }
    if attributes:
        fields["attributes"] = attributes
    return msgspec.json.encode(fields)


def _clean(text: str, *, keep_end: bool = False) -> str:
    """Text that every adapter can store.

    With `keep_end`, long text is cut at the start: the end of a traceback is the useful part.
    """
    # Cut first, so that long text costs no more than short text.
    part = tail(text) if keep_end else head(text)
    # Called on `str` itself: __str__ may return an instance of a subclass of str.
    cleaned = str.replace(part, "\0", "\\0").encode(errors="backslashreplace").decode()
    if len(text) <= MAX_TEXT and len(cleaned) <= MAX_TEXT:
        return cleaned
    return "…" + cleaned[-MAX_TEXT + 1 :] if keep_end else cleaned[: MAX_TEXT - 1] + "…"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as problem:
        return f"<the message of this error cannot be shown: str() raised {type(problem).__name__}>"


def _attributes(error: BaseException) -> Mapping[str, Any]:
    try:
        return json_attributes(error, _clean)
    except Exception:
        return {}


def _is_long(error: BaseException) -> bool:
    try:
        return is_long(error)
    except BaseException:  # its own methods raise
        return False


def _traceback(error: BaseException) -> str:
    try:
        return traceback_of(error)
    except BaseException as problem:
        return f"<the traceback of this error cannot be shown: {type(problem).__name__}>"
