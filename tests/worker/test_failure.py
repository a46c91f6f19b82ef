"""What is recorded of an error: always something that every database can store, whatever the error does."""

from __future__ import annotations

import logging
import math
import traceback
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import msgspec
import pytest

from queuert import JobError
from queuert.worker.base import failure
from queuert.worker.base.error_text import MAX_TEXT, traceback_of


def decoded(error: BaseException, code: str | None = None) -> dict[str, Any]:
    data = failure.record_of(error, code)
    assert b"\\u0000" not in data
    record: dict[str, Any] = msgspec.json.decode(data)
    assert set(record) == {"code", "type", "message", "traceback"}
    assert all(value is None or len(value) <= MAX_TEXT for value in record.values())
    return record


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def deep_group() -> BaseException:
    group: Any = ValueError("innermost")
    for _ in range(3000):
        group = ExceptionGroup("a group", [group])
    return group  # type: ignore[no-any-return]


def test_an_ordinary_error() -> None:
    record = decoded(raised(ValueError("wrong")))
    assert (record["code"], record["type"], record["message"]) == ("UNHANDLED_ERROR", "ValueError", "wrong")
    assert record["traceback"].startswith("Traceback")
    assert "test_failure.py" in record["traceback"]


def test_codes() -> None:
    class Declined(JobError):
        def __init__(self) -> None:  # does not call its base
            pass

    class Odd(JobError):
        def __init__(self) -> None:
            super().__init__("fine")
            self.code = 42  # type: ignore[assignment]

    assert decoded(JobError("DECLINED", "no"))["code"] == "DECLINED"
    assert decoded(JobError("DECLINED"), "TIMEOUT")["code"] == "TIMEOUT"
    assert decoded(Declined())["code"] == "UNHANDLED_ERROR"
    assert decoded(Odd())["code"] == "UNHANDLED_ERROR"


def test_long_texts_are_cut_the_traceback_at_its_beginning() -> None:
    record = decoded(raised(ValueError("x" * 50_000 + "the end")))
    assert len(record["message"]) == MAX_TEXT
    assert record["message"].endswith("x…")
    assert record["traceback"].startswith("…")
    assert record["traceback"].rstrip().endswith("the end")


@pytest.mark.parametrize(
    ("message", "stored"),
    [("a\0b", "a\\0b"), ("half \ud800 pair", "half \\ud800 pair"), ("\udcff", "\\udcff"), ("ö 🙂", "ö 🙂")],
)
def test_characters_that_cannot_be_stored(message: str, stored: str) -> None:
    assert decoded(raised(ValueError(message)))["message"] == stored


class Unprintable(Exception):
    def __init__(self, problem: BaseException) -> None:
        self.problem = problem

    def __str__(self) -> str:
        raise self.problem

    __repr__ = __str__


@pytest.mark.parametrize("problem", [ValueError("no"), RecursionError(), KeyboardInterrupt(), SystemExit()])
def test_an_error_that_cannot_be_shown(problem: BaseException) -> None:
    record = decoded(raised(Unprintable(problem)))
    assert record["type"] == "Unprintable"
    assert type(problem).__name__ in record["message"]


def test_a_message_of_a_class_of_its_own() -> None:
    class Text(str):
        __slots__ = ()

        def replace(self, *args: Any) -> Any:
            raise RuntimeError("not me")

        encode = replace  # type: ignore[assignment]

    class Odd(Exception):
        def __str__(self) -> str:
            return Text("odd")

    assert decoded(raised(Odd()))["message"] == "odd"


def test_a_name_with_characters_that_cannot_be_stored() -> None:
    odd = type("Odd", (Exception,), {"__qualname__": "Odd\0\ud800"})
    assert decoded(raised(odd("x")))["type"] == "Odd\\0\\ud800"


def test_errors_that_are_their_own_causes() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    first.__context__ = first
    assert "second" in decoded(first)["traceback"]


def test_long_chains_of_causes_and_deep_groups() -> None:
    error: Exception = ValueError("innermost")
    for number in range(3000):
        outer = RuntimeError(f"number {number}")
        outer.__cause__ = error
        error = outer
    assert decoded(error)["message"] == "number 2999"
    group = deep_group()
    assert decoded(group)["message"].startswith("a group")


def test_logging_never_raises(caplog: pytest.LogCaptureFixture) -> None:
    group = deep_group()
    with caplog.at_level(logging.WARNING, "queuert.worker"):
        failure.log(group, "attempt %d failed", 7, extra={"job_id": "x"})
        failure.log(Unprintable(ValueError()), "attempt %d failed", 8, extra={})
    assert [record.getMessage() for record in caplog.records][-1] == "attempt 8 failed"
    assert "attempt 7 failed" in [record.getMessage() for record in caplog.records]


def test_a_handler_of_the_users_logging_that_fails_is_no_problem() -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("the disk is full")

    logger, broken = logging.getLogger("queuert.worker"), Broken()
    logger.addHandler(broken)
    try:
        failure.log(ValueError(), "attempt failed", extra={})
    finally:
        logger.removeHandler(broken)


class Declined(JobError):
    def __init__(self, **attributes: Any) -> None:
        super().__init__("DECLINED", "no", retry=False)
        for name, value in attributes.items():
            setattr(self, name, value)


def attributes(**given: Any) -> Any:
    record = msgspec.json.decode(failure.record_of(raised(Declined(**given))))
    assert (record["code"], record["message"]) == ("DECLINED", "no")
    return record.get("attributes")


def test_attributes_that_are_json_are_kept() -> None:
    kept = {
        "reason": "stolen",
        "amount": 12.5,
        "tries": 3,
        "final": True,
        "limit": None,
        "more": {"a": [1, {"b": "c"}]},
    }
    assert attributes(**kept) == kept
    assert attributes(status=HTTPStatus.NOT_FOUND, pair=(1, 2)) == {"status": 404, "pair": [1, 2]}
    assert attributes() is None, "the code is recorded, and whether to try again is no news"


def test_other_attributes_are_left_out() -> None:
    class Hostile(dict[str, Any]):
        def items(self) -> Any:
            raise RuntimeError("no")

    itself: list[Any] = []
    itself.append(itself)
    others = {
        "response": object(), "at": datetime.now(UTC), "raw": b"x", "nan": math.nan, "set": {1}, "keys": {1: 2},
        "part": [1, object()], "itself": itself, "big": 2**70, "hostile": Hostile(), "_private": 1,
    }  # fmt: skip
    assert attributes(**others, kept=1) == {"kept": 1}


def test_attributes_are_what_every_database_can_store() -> None:
    assert attributes(**{"a\0b": "half \ud800 pair", "c": {"\0": "\0"}}) == {
        "a\\0b": "half \\ud800 pair",
        "c": {"\\0": "\\0"},
    }


def test_attributes_have_a_limit_and_are_never_cut() -> None:
    kept = attributes(long="x" * 20_000, many=list(range(20_000)), first="y" * 6_000, second="z" * 6_000, small=1)
    assert kept == {"first": "y" * 6_000, "small": 1}


def long_errors() -> dict[str, BaseException]:
    lines = "a line\n" * 1_000_000
    with_note, with_notes = ValueError("wrong"), ValueError("wrong")
    with_note.add_note(lines)
    for number in range(100_000):
        with_notes.add_note(f"note {number}")
    caused = ValueError("wrong")
    caused.__cause__ = ValueError(lines)
    return {
        "message": ValueError(lines + "the end"),
        "group": ExceptionGroup("a group", [ValueError(lines), ValueError("wrong")]),
        "note": with_note,
        "notes": with_notes,
        "cause": caused,
        "syntax": SyntaxError("wrong", ("file.py", 1, 1, lines)),
    }


@pytest.mark.parametrize("kind", long_errors())
def test_a_long_error_is_cut_before_it_is_formatted(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    error = raised(long_errors()[kind])
    assert len(traceback_of(error)) < 20 * MAX_TEXT
    record = decoded(error)
    assert len(record["traceback"]) <= MAX_TEXT
    with caplog.at_level(logging.WARNING):
        failure.log(error, "attempt %d failed", 1, extra={})
    (logged,) = caplog.records
    assert logged.getMessage().startswith("attempt 1 failed")
    assert len(caplog.text) < 30 * MAX_TEXT


@pytest.mark.parametrize("kind", ["message", "group", "note", "cause"])
def test_what_is_kept_of_a_long_error_is_the_end_of_its_traceback(kind: str) -> None:
    error = raised(long_errors()[kind])
    whole = "".join(traceback.format_exception(error))
    assert decoded(error)["traceback"] == "…" + whole[-MAX_TEXT + 1 :]
