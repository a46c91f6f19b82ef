"""The log lines of `queuert worker`: one for each failure, as text or as JSON."""

from __future__ import annotations

import json
import logging
import re
import sys
from pathlib import Path

import pytest
from tests.cli.supervising import supervised
from tests.cli.test_worker import Fail, client_for, start

from queuert.base.failure_log import INTERVAL
from queuert.operate.cli.supervisor.logs import Brief, JsonLines

FAILED = re.compile(r"attempt 1 of job \S+ \(fail\) failed")


async def test_a_failure_is_one_line_and_the_traceback_comes_once(sqlite_url: str, tmp_path: Path) -> None:
    async with client_for(sqlite_url) as client:
        await start(client, *(Fail() for _ in range(20)))
        async with supervised(sqlite_url, tmp_path, "--until-empty", health=False) as workers:
            assert await workers.exit_code() == 4
    failures = [line for line in workers.lines if FAILED.search(line)]
    assert len(failures) == 20
    assert sum(line.endswith(" – ValueError: no attempt 1") for line in failures) == 19
    assert sum(line.startswith("Traceback") for line in workers.lines) == 1


async def test_as_json_each_line_is_an_object(sqlite_url: str, tmp_path: Path) -> None:
    async with client_for(sqlite_url) as client:
        chains = await start(client, *(Fail() for _ in range(3)))
        async with supervised(
            sqlite_url, tmp_path, "--until-empty", "--log-format", "json", "--processes", "2", health=False
        ) as workers:
            assert await workers.exit_code() == 4
    records = [json.loads(line) for line in workers.lines]
    assert {"queuert.supervisor", "queuert.worker"} <= {each["logger"] for each in records}
    failures = [each for each in records if FAILED.search(each["message"])]
    assert {each["job_id"] for each in failures} == {chain.id for chain in chains}
    for each in failures:
        assert each["level"] == "WARNING"
        assert each["traceback"].startswith("Traceback (most recent call last):\n")
        assert each["traceback"].endswith("ValueError: no\nattempt 1")


def record(message: str, *, error: str | None = None) -> logging.LogRecord:
    try:
        raise ValueError(error)
    except ValueError:
        info = sys.exc_info() if error is not None else None
    return logging.LogRecord("shop", logging.ERROR, __file__, 1, message, None, info)


def test_a_traceback_comes_again_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("queuert.base.failure_log.monotonic", lambda: now)
    brief = Brief(always=False)
    texts = [brief.format(record("it failed", error=f"number {number}")) for number in range(3)]
    now = INTERVAL
    texts.append(brief.format(record("it failed", error="number 3")))
    assert ["Traceback" in text for text in texts] == [True, False, False, True]
    assert texts[1].endswith("shop: it failed – ValueError: number 1")
    assert all("Traceback" in Brief(always=True).format(record("it failed", error="x")) for _ in range(2))


def test_what_is_logged_cannot_change_the_terminal_or_look_like_another_line() -> None:
    brief = Brief(always=False)
    brief.format(record("first", error="x"))
    text = brief.format(record("second\nINFO all is well \x1b[2J\u202e", error="a\nINFO all is well"))
    assert "\n" not in text
    assert text.endswith("second\\nINFO all is well \\x1b[2J\\u202e – ValueError: a INFO all is well")
    assert brief.format(record("a table\nof two lines")).endswith("a table\nof two lines")


def test_a_traceback_that_was_cut() -> None:
    cut = record("it failed\nTraceback (most recent call last):\n  …\nValueError: very long")
    assert json.loads(JsonLines().format(cut))["traceback"].endswith("ValueError: very long")
    brief = Brief(always=False)
    assert "\n" in brief.format(cut)
    assert brief.format(cut).endswith("it failed – ValueError: very long")
