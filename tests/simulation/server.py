"""A real PostgreSQL on which one statement at a time is carried out, in an order that the simulation decides.

Each call of the driver runs in a thread, and the loop waits for it: so nothing else happens meanwhile. A statement that
waits for a lock cannot end that way. The server knows that it waits, and then its backend is stopped (SIGSTOP) and the
simulation goes on. As soon as nothing blocks a stopped backend any more, it may go on: one at a time, in an order drawn
from the seed. A statement that closes a circle of waits is the only one that runs: so it is the one that the server
ends with a deadlock error.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from tests.support.postgres import PostgresServer

from queuert.adapters.postgres.drivers.psycopg import PsycopgSyncProvider
from queuert.adapters.postgres.virtual_time import PostgresInVirtualTime
from queuert.ports.clock import Clock
from queuert.ports.provider import run

if TYPE_CHECKING:
    from tests.simulation.process import Process

T = TypeVar("T")

CONNECTIONS = 40
"""Of each process: more than its tasks can use at once, because waiting for one would stop the loop."""
LOOKS = (0.004, 0.004, 0.008, 0.016)
"""Seconds of real time before each look at what a statement waits for. The last one is repeated."""

_WAITING = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND pid <> ALL (%s::integer[])
"""
_BLOCKED_BY = "SELECT pid, pg_blocking_pids(pid) FROM unnest(%s::integer[]) AS pid"


def operations(*, with_clock: bool = True) -> PostgresInVirtualTime:
    """`with_clock`: the row of the clock is there. Then the operations do not touch it."""
    made = PostgresInVirtualTime("public", "queuert_", Clock(datetime(2026, 1, 1, tzinfo=UTC)), "")
    made._clock_row.exists = with_clock
    return made


@cache
def _server() -> PostgresServer:
    """One whose rows are where the statements have put them: nothing is vacuumed or analyzed meanwhile."""
    return PostgresServer({"autovacuum": "off", "deadlock_timeout": "30ms", "synchronous_commit": "off"})


@cache
def _template() -> str:
    """A database with our tables, and a clock."""
    name = _server().create()
    provider = PsycopgSyncProvider(_server().url_of(name))
    try:
        run(provider, None, operations(with_clock=False).migrate())
    finally:
        provider.close()
    return name


class Call:
    """A call of the driver, in a thread."""

    def __init__(self, process: Process, call: Callable[[], Any]) -> None:
        self.process = process
        self.ended = threading.Event()
        self.pid = 0
        """Of the backend, while it waits for a lock."""
        self.turn: asyncio.Future[None] | None = None
        self.error: BaseException | None = None
        self.value: Any = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.value = self._call()
        except BaseException as error:
            self.error = error
        self.ended.set()

    def result(self) -> Any:
        self._thread.join()
        if self.error is not None:
            raise self.error
        return self.value


class OrderedServer:
    def __init__(self, url: str, random: Random, now: Callable[[], datetime]) -> None:
        self.url = url
        self._random = random
        self._now = now
        self._written: datetime | None = None
        self._stopped: list[Call] = []
        """Their backends wait for locks."""
        self._watch = psycopg.connect(url, autocommit=True)
        self._providers: list[PsycopgSyncProvider] = []
        self._connections: list[psycopg.Connection[Any]] = []

    def provider(self) -> PsycopgSyncProvider:
        made = PsycopgSyncProvider(self.url, max_size=CONNECTIONS)
        self._providers.append(made)
        return made

    def connect(self) -> psycopg.Connection[Any]:
        self._connections.append(psycopg.connect(self.url, autocommit=True))
        return self._connections[-1]

    def set_clock(self) -> None:
        """The time of the database is that of the simulation."""
        now = self._now()
        if now != self._written:
            self._watch.execute("UPDATE queuert_test_clock SET now = %s", (now,))
            self._written = now

    async def carry_out(self, process: Process, what: Callable[[], T]) -> T:
        """Call the driver. Only this task waits, if the server makes it wait for a lock."""
        call = self._begin(process, what)
        if not self._ends(call):
            process.shared.note(process.name, "waits for a lock")
            call.turn = asyncio.get_running_loop().create_future()
            try:
                await call.turn
            except asyncio.CancelledError:
                self.cancel(call)
                raise
            await process.while_alive()
        value: T = call.result()
        return value

    def carry_out_now(self, process: Process, what: Callable[[], T]) -> T:
        """For what never waits for a lock, like ROLLBACK."""
        call = self._begin(process, what)
        assert self._ends(call)
        value: T = call.result()
        return value

    def _begin(self, process: Process, what: Callable[[], Any]) -> Call:
        self.set_clock()
        return Call(process, what)

    def cancel(self, call: Call) -> None:
        """As drivers do when their task is cancelled."""
        if call in self._stopped:
            self._stopped.remove(call)
            _signal(call.pid, signal.SIGCONT)
            self._watch.execute("SELECT pg_cancel_backend(%s)", (call.pid,))
            call.ended.wait()
            if call.turn is not None and not call.turn.done():
                call.turn.set_result(None)
            self._go_on()

    def cancel_all(self, process: Process) -> None:
        """It was killed."""
        for call in [each for each in self._stopped if each.process is process]:
            self.cancel(call)

    def cancel_on(self, connection: Any) -> None:
        """What waits on this connection."""
        for call in [each for each in self._stopped if each.pid == connection.info.backend_pid]:
            self.cancel(call)

    def _ends(self, call: Call) -> bool:
        """Wait for its end. False: it waits for a lock, and is stopped."""
        ended = self._ends_without_others(call)
        if ended:
            self._go_on()
        return ended

    def _ends_without_others(self, call: Call) -> bool:
        looks = iter(LOOKS)
        while not call.ended.wait(next(looks, LOOKS[-1])):
            for (pid,) in self._watch.execute(_WAITING, ([each.pid for each in self._stopped],)).fetchall():
                if self._waits_for_others(pid):
                    call.pid = pid
                    _signal(pid, signal.SIGSTOP)
                    self._stopped.append(call)
                    return False
        return True

    def _waits_for_others(self, pid: int) -> bool:
        """Not if it waits for itself, too: then the server ends it. It may have done so a moment ago. Then it waits
        for nobody."""
        blocked_by = self._blocked_by(pid)
        reached: set[int] = set()
        left = list(blocked_by[pid])
        while left:
            each = left.pop()
            if each not in reached:
                reached.add(each)
                left += blocked_by.get(each, ())
        return bool(reached) and pid not in reached

    def _blocked_by(self, *pids: int) -> dict[int, list[int]]:
        return dict(self._watch.execute(_BLOCKED_BY, ([*pids, *(each.pid for each in self._stopped)],)).fetchall())

    def _go_on(self) -> None:
        """Something has ended: others may have got their locks."""
        while self._stopped:
            blocked_by = self._blocked_by()
            free = [each for each in self._stopped if not blocked_by[each.pid]]
            if not free:
                return
            call = self._random.choice(free)
            self._stopped.remove(call)
            _signal(call.pid, signal.SIGCONT)
            if self._ends_without_others(call):
                assert call.turn is not None
                if not call.turn.done():
                    call.turn.set_result(None)

    def close(self) -> None:
        for call in list(self._stopped):
            self.cancel(call)
        for provider in self._providers:
            provider.close()
        for connection in (*self._connections, self._watch):
            connection.close()


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


@contextmanager
def ordered_server(random: Random, now: Callable[[], datetime]) -> Generator[OrderedServer]:
    """A database of one's own, in which nothing has happened yet."""
    with _server().fresh(template=_template()) as url:
        made = OrderedServer(url, random, now)
        try:
            yield made
        finally:
            made.close()
