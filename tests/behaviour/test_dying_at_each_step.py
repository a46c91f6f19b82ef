"""Processes that are killed while they fire schedules, wherever they are: each tick fires once in the end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.behaviour.children import child
from tests.behaviour.conftest import Setting
from tests.behaviour.programs.dying_at_each_step import SCENARIOS

# Each of these takes some seconds. The others do the same with the database.
QUICK = (("sqlite", "function"), ("sqlite", "cancel"), ("sqlite", "after"), ("postgres", "function"))


def url_of(storage: str, directory: Path) -> str:
    return Setting(storage, None, directory).url


@pytest.mark.parametrize(
    ("storage", "scenario"),
    [
        pytest.param(storage, name, marks=() if (storage, name) in QUICK else pytest.mark.soak)
        for storage in ("sqlite", "postgres")
        for name in SCENARIOS
    ],
)
async def test_killed_between_every_two_steps(storage: str, scenario: str, tmp_path: Path) -> None:
    steps: list[str] = []
    async with child("dying_at_each_step", url_of(storage, tmp_path), scenario) as process:
        while (line := await process.says()) not in ("", "done"):
            steps.append(re.sub(r"^\d+ ?", "", line))
        assert line == "done", steps
        assert await process.exit_code() == 0
    # The last round came to an end.
    assert steps.pop() == ""
    assert {"due_schedules", "commit", "committed"} <= set(steps)
    assert len(steps) >= 8


@pytest.mark.parametrize("storage", ["sqlite", "postgres"])
async def test_three_workers_at_once_some_of_which_are_killed(storage: str, tmp_path: Path) -> None:
    async with child("dying_at_each_step", url_of(storage, tmp_path), "three at once") as process:
        while (line := await process.says()) not in ("", "done"):
            pass
        assert line == "done"
        assert await process.exit_code() == 0
