"""Faults at every step of a firing: the database fails, or the worker is told to stop. Each tick fires once in the end.

The steps and the scenarios are those of `test_dying_at_each_step`, in this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.programs import dying_at_each_step
from tests.behaviour.programs.dying_at_each_step import SCENARIOS, Other, anchored, fire, fire_and_check
from tests.behaviour.steps import PATIENCE, Step
from tests.behaviour.watching import Points, watched

from queuert import StorageUnavailable

pytestmark = pytest.mark.in_turn


def fail() -> None:
    raise StorageUnavailable("no database, on purpose")


def stop() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


class Fault:
    """What happens at one step."""

    def __init__(self, number: int, act: Callable[[], None]) -> None:
        self.points = Points(records=False)
        self.points.visit = self._visit
        self._left, self._act = number, act
        self.happened = ""

    def _visit(self, point: str) -> None:
        self._left -= 1
        if self._left == -1:
            self.happened = point
            self._act()


# The others take the same steps.
QUICK = ((fail, "function"), (fail, "cancel"), (stop, "function"), (stop, "queue"))


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of all tests may take so long that another tick falls due since the module was imported."""
    for name, value in zip(("START", "TICKS", "HOURLY"), anchored(datetime.now(UTC)), strict=True):
        monkeypatch.setattr(dying_at_each_step, name, value)


@pytest.mark.parametrize(
    ("act", "scenario"),
    [
        pytest.param(act, name, marks=() if (act, name) in QUICK else pytest.mark.soak)
        for act in (fail, stop)
        for name in SCENARIOS
    ],
)
async def test_a_fault_at_every_step(setting: Setting, scenario: str, act: Callable[[], None]) -> None:
    chosen = SCENARIOS[scenario]
    happened: list[str] = []
    async with setting.connect([Step, Other]) as client:
        for number in range(1000):
            name = f"s{number}"
            await chosen.prepare(client, name)
            fault = Fault(number, act)
            with suppress(asyncio.CancelledError):
                async with asyncio.timeout(PATIENCE):
                    await asyncio.create_task(fire(watched(client, fault.points), chosen.schedules(name)))
            await fire_and_check(client, chosen, name)
            if not fault.happened:
                break
            happened.append(fault.happened)
    assert {"save_schedules", "commit", "committed"} <= set(happened)
