"""What is recorded of an error: always something that every database can store, whatever the error does."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from queuert import JobError
from queuert.worker import failure


def decoded(error: BaseException, code: str | None = None) -> dict[str, Any]:
    data = failure.record_of(error, code)
    assert b"\\u0000" not in data
    record: dict[str, Any] = msgspec.json.decode(data)
    assert set(record) == {"code", "type", "message", "traceback"}
    assert all(value is None or len(value) <= failure.MAX_TEXT for value in record.values())
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
    assert len(record["message"]) == failure.MAX_TEXT
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
