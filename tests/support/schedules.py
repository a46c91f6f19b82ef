"""Schedules that are due now, whatever the time is: no test has to wait for a tick, or to be quicker than one.
Firing them by hand, and changing what is stored of them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace
from tests.support.worlds import run

from queuert import Client, Every
from queuert.engine.transaction import Hooks
from queuert.features.schedules.firing import Fired, cancel_overlapped, fire_due
from queuert.features.schedules.stored import definition_of, encode, state_of
from queuert.features.schedules.times import from_data
from queuert.records.schedules import whole_milliseconds

HOUR = timedelta(hours=1)


def half_past() -> Every:
    """Hourly, with the last tick half an hour ago and the next one in half an hour."""
    return Every(HOUR, start=whole_milliseconds(datetime.now(UTC) - 5.5 * HOUR))


def last_tick(times: Every) -> datetime:
    assert times.start is not None
    return times.start + 5 * HOUR


async def make_due(client: Client[Any], *names: str) -> None:
    """As if no worker had been there for an hour."""
    state = client._engine.state
    look = await client._run((state.get_schedules(names), None))
    rows: list[Any] = []
    for row in look.rows:
        assert row is not None
        horizon = look.now - HOUR
        tick = from_data(definition_of(row).times).next(horizon, name=row.name)
        assert tick is not None
        known = encode(replace(state_of(row), horizon=horizon))
        rows.append(replace(row, next_at=tick.at, due_at=look.now, state=known))
    assert all(await client._run((state.save_schedules(rows), None)))


async def fire(client: Client[Any], number: int = 50) -> Fired:
    """What a worker does when it wakes up, but for the messages."""
    fired = await run(client, fire_due(client._engine, Hooks(), number, []))
    for name in fired.cancelling:
        await run(client, cancel_overlapped(client._engine, Hooks(), name))
    return fired


async def rewrite(client: Client[Any], name: str, **values: Any) -> None:
    """Change what is stored, as no program does."""
    state = client._engine.state
    (row,) = (await run(client, state.get_schedules([name]))).rows
    assert row is not None
    assert await run(client, state.save_schedules([replace(row, **values)])) == [True]
