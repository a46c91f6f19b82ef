"""Log lines on stderr, unless the application has set up its own."""

from __future__ import annotations

import copy
import json
import logging
from datetime import UTC, datetime
from typing import Any

from queuert.base.failure_log import Repetitions
from queuert.operate.terminal import clean

FORMAT = "%(asctime)s %(levelname)-7s %(process)d %(name)s: %(message)s"
LONGEST = 500
"""Characters of an error in the line of a failure."""

_BEGINNING = "\nTraceback (most recent call last):"
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
"""What every record has. The rest was given by the code that logs."""


def set_up_logging(level: str, form: str) -> None:
    """Does nothing if the root logger has a handler already."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else Brief(always=level == "DEBUG"))
    logging.basicConfig(level=level, handlers=[handler])


class Brief(logging.Formatter):
    """One line for each record. The traceback of an error follows once a minute, unless it is
    `always` shown: thousands of jobs may fail in the same way.
    """

    def __init__(self, *, always: bool) -> None:
        super().__init__(FORMAT)
        self._always = always
        self._shown = Repetitions()

    def format(self, record: logging.LogRecord) -> str:
        message, trace = _parted(record)
        shown = copy.copy(record)
        shown.msg, shown.args, shown.exc_info, shown.exc_text = clean(message), None, None, None
        if trace is None:
            shown.msg = "\n".join(map(clean, message.splitlines()))
        elif not self._always and self._shown.next(_kind(record)) is None:
            shown.msg += f" – {_summary(trace)}"
        else:
            shown.msg += "".join(f"\n{clean(line)}" for line in trace.splitlines())
        return super().format(shown)


class JsonLines(logging.Formatter):
    """One JSON object for each record, in one line, with its traceback and what was given with
    `extra`.
    """

    def format(self, record: logging.LogRecord) -> str:
        message, trace = _parted(record)
        about: dict[str, Any] = {
            **{name: value for name, value in vars(record).items() if name not in _STANDARD},
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "process": record.process,
            "message": message,
        }
        if trace is not None:
            about["traceback"] = trace
        return json.dumps(about, default=str)


def _parted(record: logging.LogRecord) -> tuple[str, str | None]:
    """The message, and the traceback: also one that is in the message, because it was cut."""
    message = record.getMessage()
    if record.exc_info:
        return message, logging.Formatter().formatException(record.exc_info)
    message, beginning, rest = message.partition(_BEGINNING)
    return message, f"{beginning}{rest}".strip("\n") if beginning else None


def _kind(record: logging.LogRecord) -> tuple[object, ...]:
    """Errors of one class, raised at one place, are the same."""
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return record.name, record.msg
    place, trace = None, error.__traceback__
    while trace is not None:
        place, trace = (trace.tb_frame.f_code.co_filename, trace.tb_lineno), trace.tb_next
    return record.name, type(error), place


def _summary(trace: str) -> str:
    """The error itself, as the traceback ends with it: its message may have several lines."""
    lines = trace.splitlines()
    last_frame = max((number for number, line in enumerate(lines) if line.startswith("  ")), default=-1)
    text = clean(" ".join(lines[last_frame + 1 :]))
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
