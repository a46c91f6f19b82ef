"""The order of what a real PostgreSQL does is decided from outside, locks included."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import psycopg
import pytest
from tests.simulation.loop import SimulatedLoop, simulate
from tests.simulation.process import Faults, Process, Shared
from tests.simulation.server import OrderedServer, ordered_server

NOW = datetime(2027, 1, 1, tzinfo=UTC)


@pytest.fixture
def server() -> Iterator[OrderedServer]:
    with ordered_server(Random(0), lambda: NOW) as made:
        yield made


class Session:
    """A connection of a process, which writes down what it did."""

    def __init__(self, server: OrderedServer, log: list[str], name: str) -> None:
        self._server, self._log, self._name = server, log, name
        self.process = Process(name, Shared(Random(0), Faults()))
        self.connection = server.connect()

    async def say(self, text: str) -> Any:
        def execute() -> Any:
            cursor = self.connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else None

        answer = await self._server.carry_out(self.process, execute)
        self._log.append(f"{self._name} {text.split()[0].lower()}")
        return answer


def in_simulation(server: OrderedServer, main: Callable[..., Any]) -> list[str]:
    log: list[str] = []

    async def run(_: SimulatedLoop) -> None:
        await main(*(Session(server, log, name) for name in "abc"))

    with psycopg.connect(server.url) as connection:
        connection.execute("CREATE TABLE entry (id integer PRIMARY KEY, number integer)")
        connection.execute("INSERT INTO entry VALUES (1, 0), (2, 0)")
    simulate(0, run)
    return log


def add(entry: int) -> str:
    return f"UPDATE entry SET number = number + 1 WHERE id = {entry}"


def test_those_that_wait_for_a_lock_go_on_one_after_the_other(server: OrderedServer) -> None:
    async def main(a: Session, b: Session, c: Session) -> None:
        await a.say("BEGIN")
        await a.say(add(1))
        waiting = [asyncio.ensure_future(each.say(add(1))) for each in (b, c)]
        await asyncio.sleep(1)
        assert not any(each.done() for each in waiting)
        assert await a.say("SELECT number FROM entry WHERE id = 1") == [(1,)]
        await a.say("COMMIT")
        await asyncio.gather(*waiting)
        assert await a.say("SELECT number FROM entry WHERE id = 1") == [(3,)]

    log = in_simulation(server, main)
    assert log[:4] == ["a begin", "a update", "a select", "a commit"]
    assert sorted(log[4:]) == ["a select", "b update", "c update"]


def test_the_one_that_closes_a_circle_is_ended(server: OrderedServer) -> None:
    async def main(a: Session, b: Session, _: Session) -> None:
        for session, entry in ((a, 1), (b, 2)):
            await session.say("BEGIN")
            await session.say(add(entry))
        waiting = asyncio.ensure_future(a.say(add(2)))
        await asyncio.sleep(1)
        with pytest.raises(psycopg.errors.DeadlockDetected):
            await b.say(add(1))
        await waiting
        await a.say("COMMIT")
        assert await a.say("SELECT id, number FROM entry ORDER BY id") == [(1, 1), (2, 1)]

    in_simulation(server, main)


def test_what_waits_is_cancelled_with_its_task(server: OrderedServer) -> None:
    async def main(a: Session, b: Session, c: Session) -> None:
        await a.say("BEGIN")
        await a.say(add(1))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await b.say(add(1))
        killed = asyncio.ensure_future(c.say(add(1)))
        await asyncio.sleep(1)
        c.process.kill()
        server.cancel_all(c.process)
        await a.say("COMMIT")
        assert await b.say("SELECT number FROM entry WHERE id = 1") == [(1,)]
        assert not killed.done()

    in_simulation(server, main)


def test_the_time_is_that_of_the_simulation() -> None:
    moments = iter([NOW, NOW + timedelta(days=30)])
    with ordered_server(Random(0), lambda: next(moments)) as server:
        for wanted in (NOW, NOW + timedelta(days=30)):
            server.set_clock()
            with psycopg.connect(server.url) as connection:
                assert connection.execute("SELECT now FROM queuert_test_clock").fetchall() == [(wanted,)]
