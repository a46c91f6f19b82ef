"""A failure that repeats is logged once, then once in a while with a count, and so is its end."""

from __future__ import annotations

import logging

import pytest

from queuert.base import failure_log
from queuert.base.failure_log import INTERVAL, FailureLog

logger = logging.getLogger("queuert.test")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(failure_log, "monotonic", lambda: now[0])
    return now


def texts(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def fail(log: FailureLog, error: Exception, times: int = 1, what: str = "publishing") -> None:
    for _ in range(times):
        log.failed(what, error, "%s failed", what, extra={"worker_id": "w"})


def test_the_first_failure_is_logged_in_full(caplog: pytest.LogCaptureFixture, clock: list[float]) -> None:
    log, error = FailureLog(logger), OSError("gone")
    fail(log, error, 3)
    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == ("ERROR", "publishing failed")
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert vars(record)["worker_id"] == "w"


def test_repetitions_are_counted_once_a_minute(caplog: pytest.LogCaptureFixture, clock: list[float]) -> None:
    log = FailureLog(logger)
    fail(log, OSError(), 1000)
    clock[0] += INTERVAL
    fail(log, OSError(), 10)
    clock[0] += INTERVAL
    fail(log, OSError())
    more = "publishing failed (and %d times more since the last report)"
    assert texts(caplog) == ["publishing failed", more % 999, more % 9]


def test_its_end_is_logged_with_the_rest(caplog: pytest.LogCaptureFixture, clock: list[float]) -> None:
    log = FailureLog(logger)
    fail(log, OSError(), 13_443)
    log.worked("publishing")
    log.worked("publishing")
    assert texts(caplog)[1:] == ["publishing works again; it had failed 13442 times more than was logged"]


def test_a_single_failure_needs_no_end(caplog: pytest.LogCaptureFixture, clock: list[float]) -> None:
    log = FailureLog(logger)
    log.worked("publishing")
    fail(log, OSError())
    log.worked("publishing")
    assert texts(caplog) == ["publishing failed"]


def test_what_fails_every_other_time_is_not_logged_every_time(
    caplog: pytest.LogCaptureFixture, clock: list[float]
) -> None:
    log = FailureLog(logger)
    for _ in range(100):
        fail(log, OSError())
        log.worked("publishing")
        clock[0] += 0.1
    assert len(texts(caplog)) == 2  # the first failure, and the first end after a repetition
    clock[0] += INTERVAL
    fail(log, OSError())
    assert texts(caplog)[2] == "publishing failed (and 98 times more since the last report)"


def test_places_and_classes_are_logged_separately(caplog: pytest.LogCaptureFixture, clock: list[float]) -> None:
    log = FailureLog(logger)
    for _ in range(3):
        fail(log, OSError())
        fail(log, ValueError())
        fail(log, OSError(), what="settling")
    log.worked("settling")
    assert texts(caplog) == [
        "publishing failed", "publishing failed", "settling failed",
        "settling works again; it had failed 2 times more than was logged",
    ]  # fmt: skip


def test_a_failure_long_after_is_a_new_one(caplog: pytest.LogCaptureFixture, clock: list[float]) -> None:
    log = FailureLog(logger)
    fail(log, OSError())
    clock[0] += INTERVAL
    log.worked("publishing")
    fail(log, OSError())
    assert texts(caplog) == ["publishing failed"] * 2
