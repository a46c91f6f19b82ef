"""Schedules that are due again before they have fired: a worker still does everything else."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from tests.behaviour.conftest import Setting
from tests.behaviour.programs.dying_at_each_step import Other, fire, handlers, put, stored
from tests.behaviour.steps import PATIENCE, Step, eventually, patiently
from tests.behaviour.watching import Points, watched

from queuert import Every, Schedules, Worker


async def test_one_look_ends(setting: Setting) -> None:
    async with setting.connect([Step, Other]) as client:
        for number in range(20):
            await put(client, f"s{number}", Every(timedelta(milliseconds=1)))
        points = Points()
        watching = watched(client, points)

        async def take_time() -> None:
            await asyncio.sleep(0.005)

        # So that all of them are due again when the next page is read.
        points.at("save_schedules", take_time)
        async with asyncio.timeout(PATIENCE):
            await fire(watching)
        assert 1 <= points.counts["save_schedules"] <= 4
        _, _, found = await stored(client, "s0")
        assert found


async def test_a_worker_still_declares_its_schedules(setting: Setting, monkeypatch: Any) -> None:
    monkeypatch.setattr("queuert.features.schedules.service.DECLARED_EVERY", 0.05)
    schedules = Schedules()
    schedules.every(timedelta(days=1), Other(), name="daily")
    async with setting.connect([Step, Other]) as client:
        for number in range(20):
            await put(client, f"s{number}", Every(timedelta(milliseconds=1)))
        points = Points()
        async with Worker(watched(client, points), handlers, schedules=[schedules]):
            await patiently(eventually(lambda: points.counts["see_releases"] >= 3))
