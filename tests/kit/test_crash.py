"""`testing.crash_everywhere`: it finds the classic mistakes, and passes what is right."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kit.conftest import Place

import queuert
from queuert import Attempt, EntryJob, Handlers, InvalidArgument, Job, SyncAttempt, testing
from queuert.testing import Crash
from queuert.testing.crash import difference


class Charge(EntryJob[str, "Send"], name="charge"):
    order_id: int


class Send(Job[str], name="send"):
    order_id: int


class FakeBank:
    """Another system: it keeps what it was told, whatever dies here."""

    def __init__(self) -> None:
        self.charges: list[int] = []
        self.keys: set[str] = set()

    @testing.outside
    async def charge(self, order_id: int, key: str | None = None) -> None:
        if key is not None and key in self.keys:
            return
        self.charges.append(order_id)
        if key is not None:
            self.keys.add(key)


def handlers_of(bank: FakeBank, charge: Callable[[Attempt[Charge], FakeBank], Any]) -> Handlers[Any]:
    handlers = Handlers[Any]()

    @handlers.handles(Charge)
    async def handle(attempt: Attempt[Charge]) -> Send:
        return await charge(attempt, bank)  # type: ignore[no-any-return]

    @handlers.handles(Send)
    async def send(attempt: Attempt[Send]) -> str:
        return f"sent {attempt.job.order_id}"

    return handlers


async def both_or_none(attempt: Attempt[Charge], bank: FakeBank) -> Send:
    if not bank.charges:  # wrong: there may be one
        _ = [await bank.charge(1), await bank.charge(2)]  # type: ignore[func-returns-value]
    return Send(order_id=attempt.job.order_id)


async def both_at_once(attempt: Attempt[Charge], bank: FakeBank) -> Send:
    if not bank.charges:
        await asyncio.gather(bank.charge(1), bank.charge(2))
    return Send(order_id=attempt.job.order_id)


async def without_a_key(attempt: Attempt[Charge], bank: FakeBank) -> Send:
    await bank.charge(attempt.job.order_id)
    async with attempt.complete():
        return Send(order_id=attempt.job.order_id)


async def with_a_key(attempt: Attempt[Charge], bank: FakeBank) -> Send:
    await bank.charge(attempt.job.order_id, key=attempt.job_id)
    async with attempt.complete():
        return Send(order_id=attempt.job.order_id)


async def with_phases(attempt: Attempt[Charge], bank: FakeBank) -> Send:
    async with attempt.prepare() as tx:
        found = await attempt.client.get_chain(attempt.chain_id, tx=tx)
        assert found is not None
    await bank.charge(attempt.job.order_id, key=attempt.job_id)
    async with attempt.complete():
        return Send(order_id=attempt.job.order_id)


async def hiding_the_crash(attempt: Attempt[Charge], bank: FakeBank) -> Send:
    try:
        await bank.charge(attempt.job.order_id)
    except BaseException:
        return Send(order_id=0)
    finally:
        await bank.charge(-1)  # a process that was killed does not get here
    return Send(order_id=attempt.job.order_id)


async def scenario(crash: Crash, charge: Any) -> object:
    bank = FakeBank()
    async with (
        queuert.connect("memory://", jobs=[Charge]) as client,
        crash.running(client, handlers_of(bank, charge)) as run,
    ):
        chain = await client.submit(Charge(order_id=7))
        assert await run.output(chain) == "sent 7"
        return bank.charges


def test_each_database_recovers(place: Place) -> None:
    @testing.crash_everywhere
    async def test(crash: Crash) -> object:
        bank = FakeBank()
        async with place.connect([Charge]) as client:
            await testing.clean(client)
            async with crash.running(client, handlers_of(bank, with_phases)) as run:
                chain = await client.submit(Charge(order_id=7))
                assert await run.output(chain) == "sent 7"
                return bank.charges

    test()


def test_the_classic_mistake_is_found() -> None:
    @testing.crash_everywhere
    async def test(crash: Crash) -> object:
        return await scenario(crash, without_a_key)

    with pytest.raises(AssertionError) as raised:
        test()
    text = str(raised.value)
    assert "crashes changed the effects" in text
    assert "killed before test_crash.py:" in text
    assert "in without_a_key: async with attempt.complete():" in text
    assert "doubled: 7" in text
    assert "in without_a_key: await bank.charge(attempt.job.order_id)" not in text, "nothing is charged yet"
    assert "after the commit of 'charge'" not in text


@pytest.mark.parametrize("charge", [both_or_none, both_at_once])
def test_a_crash_between_two_calls_of_one_line(charge: Any) -> None:
    @testing.crash_everywhere
    async def test(crash: Crash) -> object:
        return await scenario(crash, charge)

    with pytest.raises(AssertionError) as raised:
        test()
    text = str(raised.value)
    assert "1 of " in text
    assert "killed before the call of FakeBank.charge\n    lost: 2" in text


@testing.crash_everywhere
async def test_the_corrected_handler_passes(crash: Crash) -> object:
    return await scenario(crash, with_a_key)


def test_nothing_runs_in_a_process_that_is_dead() -> None:
    @testing.crash_everywhere
    async def test(crash: Crash) -> object:
        return await scenario(crash, hiding_the_crash)

    with pytest.raises(AssertionError) as raised:
        test()
    text = str(raised.value)
    assert "Send(order_id=0)" not in text.replace("return Send(order_id=0)", "")
    assert "the scenario failed" not in text, "the chain always ends as it should"


class Ledger:
    """Tables of the user's own, in the database of the jobs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self.open() as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS paid (order_id INTEGER)")
        connection.close()

    def open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path)

    def rows(self) -> list[int]:
        connection = self.open()
        try:
            return [row[0] for row in connection.execute("SELECT order_id FROM paid")]
        finally:
            connection.close()


@testing.outside
def pay_beside(path: Path, order_id: int) -> None:
    """On another connection than the one of the job."""
    beside = sqlite3.connect(path, isolation_level=None)
    beside.execute("INSERT INTO paid VALUES (?)", (order_id,))
    beside.close()


def pay_handlers(*, in_transaction: bool, path: Path) -> Handlers[Any]:
    handlers = Handlers[Any]()

    @handlers.handles(Charge)
    def pay(attempt: SyncAttempt[Charge]) -> Send:
        if not in_transaction:
            pay_beside(path, attempt.job.order_id)
        with attempt.complete() as tx:
            if in_transaction:
                tx.connection.execute("INSERT INTO paid VALUES (?)", (attempt.job.order_id,))
            return Send(order_id=attempt.job.order_id)

    @handlers.handles(Send)
    def send(attempt: SyncAttempt[Send]) -> str:
        return f"sent {attempt.job.order_id}"

    return handlers


def pay(crash: Crash, *, in_transaction: bool) -> object:
    path = crash.directory / "jobs.db"
    ledger, handlers = Ledger(path), pay_handlers(in_transaction=in_transaction, path=path)
    with (
        queuert.connect_sync(f"sqlite:///{path}", jobs=[Charge]) as client,
        crash.running(client, handlers) as run,
    ):
        if not crash.restarted:
            client.submit(Charge(order_id=7))
        run.until_idle()
        (chain,) = client.list_chains(Charge).items
        return {"paid": ledger.rows(), "status": chain.status}


@testing.crash_everywhere
def test_what_commits_with_the_job_takes_effect_once(crash: Crash) -> object:
    return pay(crash, in_transaction=True)


def test_what_is_written_beside_the_job_is_doubled() -> None:
    @testing.crash_everywhere
    def test(crash: Crash) -> object:
        return pay(crash, in_transaction=False)

    with pytest.raises(AssertionError, match="paid: doubled: 7"):
        test()


@testing.crash_everywhere
async def test_plain_handlers_of_an_async_client(crash: Crash) -> object:
    path = crash.directory / "jobs.db"
    ledger, handlers = Ledger(path), pay_handlers(in_transaction=True, path=path)
    async with (
        queuert.connect(f"sqlite:///{path}", jobs=[Charge]) as client,
        crash.running(client, handlers) as run,
    ):
        await run.output(await client.submit(Charge(order_id=7)))
        return ledger.rows()


def test_a_real_signal_finds_the_same(capfd: pytest.CaptureFixture[str]) -> None:
    @testing.crash_everywhere(sigkill=True)
    def right(crash: Crash) -> object:
        return _by_signal(crash, in_transaction=True)

    @testing.crash_everywhere(sigkill=True)
    def wrong(crash: Crash) -> object:
        return _by_signal(crash, in_transaction=False)

    right()
    with pytest.raises(AssertionError, match="paid: doubled: 7"):
        wrong()


def _by_signal(crash: Crash, *, in_transaction: bool) -> object:
    """The worker that was killed is noticed: its process has ended, or its lease does."""
    path = crash.directory / "jobs.db"
    clock = testing.Clock()
    ledger, handlers = Ledger(path), pay_handlers(in_transaction=in_transaction, path=path)
    with (
        queuert.connect_sync(f"sqlite:///{path}", jobs=[Charge], clock=clock) as client,
        crash.running(client, handlers) as run,
    ):
        if not crash.restarted:
            client.submit(Charge(order_id=7), dedup="once")
        run.until_idle(skip_time=True)
        return {"paid": ledger.rows(), "status": [chain.status for chain in client.list_chains(Charge).items]}


def test_a_scenario_must_make_sense() -> None:
    with pytest.raises(InvalidArgument, match="parameter named crash"):

        @testing.crash_everywhere
        def no_parameter() -> object:
            return 1

    @testing.crash_everywhere
    def no_effects(crash: Crash) -> None:
        return None

    with pytest.raises(InvalidArgument, match="must return the effects"):
        no_effects()

    @testing.crash_everywhere
    def no_handler(crash: Crash) -> object:
        return 1

    with pytest.raises(AssertionError, match="ran no handler"):
        no_handler()


def test_differences_are_told() -> None:
    assert difference([1, 2], [1, 2, 2]) == ["doubled: 2"]
    assert difference([1, 2], [1]) == ["lost: 2"]
    assert difference([1], [1, 3]) == ["too much: 3"]
    assert difference([1, 2], [2, 1]) == ["expected [1, 2]", "got [2, 1]"]
    assert difference({"a": [1], "b": 1}, {"a": [1, 1], "c": 2}) == [
        "a: doubled: 1", "b: expected 1", "b: got None", "c: expected None", "c: got 2",
    ]  # fmt: skip


def test_fixtures_of_pytest_are_passed(tmp_path: Path) -> None:
    seen: list[Path] = []

    @testing.crash_everywhere
    def test(tmp_path: Path, crash: Crash) -> object:
        seen.append(tmp_path)
        return pay(crash, in_transaction=True)

    test(tmp_path=tmp_path)
    assert set(seen) == {tmp_path}
