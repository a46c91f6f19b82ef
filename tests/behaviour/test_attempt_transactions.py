"""A handler's transaction holds its claim from its first message on: what is said, who waits, and who has lost."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Any, Literal
from uuid import uuid4

import asyncpg
import psycopg
import pytest
from tests.adapters.postgres.drivers import Watcher
from tests.behaviour.steps import PATIENCE, SOON, Gate, Step, eventually, job, patiently, start
from tests.conformance.postgres_harness import database, empty
from tests.observability.recorder import Recorder
from tests.support.pgbouncer import needs_pgbouncer, pgbouncer

import queuert
from queuert import (
    Attempt,
    Chain,
    ChainEnded,
    Client,
    EntryJob,
    Handlers,
    OwnershipLost,
    StorageBusy,
    StorageUnavailable,
    SyncAttempt,
    Worker,
)
from queuert.adapters.postgres.drivers.asyncpg_pools import AsyncpgOpener, OwnConnection

pytestmark = pytest.mark.drivers

SCHEMES = ["postgresql", "postgresql+asyncpg"]
WAITS = "wait_event_type = 'Lock' AND query LIKE '%queuert_hold%'"
WRITE = "UPDATE account SET balance = balance + 1 WHERE id = 1"


@pytest.fixture
def watch() -> Iterator[Watcher]:
    empty()
    watcher = Watcher(database())
    watcher("CREATE TABLE account (id int PRIMARY KEY, balance int)")
    watcher("INSERT INTO account VALUES (1, 0)")
    yield watcher
    watcher("DROP TABLE account")
    watcher.close()


def url(scheme: str) -> str:
    return database().replace("postgresql://", f"{scheme}://")


@asynccontextmanager
async def working(scheme: str, handlers: Handlers[Any], **options: Any) -> AsyncGenerator[Client[Any]]:
    async with (
        queuert.connect(url(scheme), jobs=[Step], poll_interval=0.05) as client,
        Worker(client, handlers, poll_interval=0.05, recovery_backoff=SOON, **options),
    ):
        yield client


def balance(watch: Watcher) -> int:
    (found,) = watch("SELECT balance FROM account")
    return int(found)


# What is said


SHARED = ("queuert_claim", "queuert_reap", "queuert_next_available_in", "pg_notify")
"""What a worker asks for many jobs at once."""


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What our asyncpg connections say, one entry for each message, but for what jobs share."""
    words: list[str] = []
    connect = AsyncpgOpener.connect

    def hear(record: Any) -> None:
        if not any(each in record.query for each in SHARED):
            words.append(record.query)

    async def listened_to(self: AsyncpgOpener, seconds: float, statement_timeout: float | None) -> OwnConnection:
        connection = await connect(self, seconds, statement_timeout)
        connection.add_query_logger(hear)
        return connection

    monkeypatch.setattr(AsyncpgOpener, "connect", listened_to)
    return words


async def complete_first(attempt: Attempt[Step, Any]) -> int:
    async with attempt.complete() as tx:
        await tx.connection.execute(WRITE)
    return 1


def prepared(mode: Literal["atomic", "staged"]) -> Callable[[Attempt[Step, Any]], Awaitable[int]]:
    async def handler(attempt: Attempt[Step, Any]) -> int:
        async with attempt.prepare(mode) as tx:
            await tx.connection.execute("SELECT balance FROM account")
        return await complete_first(attempt)

    return handler


async def auto_setup(attempt: Attempt[Step, Any]) -> int:
    await asyncio.sleep(0)
    return await complete_first(attempt)


HANDLERS = {
    "complete": (complete_first, 3),
    "atomic": (prepared("atomic"), 4),
    "staged": (prepared("staged"), 6),
    "auto": (auto_setup, 3),
}


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize(("handler", "messages"), HANDLERS.values(), ids=HANDLERS)
async def test_messages_of_an_attempt(
    watch: Watcher, said: list[str], handler: Callable[..., Any], messages: int, observed: bool
) -> None:
    """With asyncpg, the user's own included: BEGIN, guard and lock are one, and so are settlement, release and COMMIT.

    What observers are told of a settlement is read beside it, in a savepoint, before COMMIT: four more.
    """
    messages += 4 if observed else 0
    handlers = Handlers[Any]()
    handlers.handles(Step)(handler)
    observers = [Recorder()] if observed else []
    async with queuert.connect(url("postgresql+asyncpg"), jobs=[Step], observers=observers) as client:
        await start(client, 100)
        said.clear()
        await Worker(client, handlers, concurrency=5).drain()
        # Less than one for each job: a new connection, and the reset of one that goes from user code to us.
        assert len(said) // 100 == messages, Counter(said)
        begins = [each for each in said if "BEGIN" in each]
        assert all("; SAVEPOINT queuert_guard; SELECT true WHERE" in each for each in begins), begins
    assert balance(watch) == 100


TASKS = {"complete": (complete_first, 2), "staged": (prepared("staged"), 3)}


@pytest.mark.parametrize(("handler", "tasks"), TASKS.values(), ids=TASKS)
async def test_tasks_of_an_attempt(watch: Watcher, handler: Callable[..., Any], tasks: int) -> None:
    """The handler's own, and one that ends the attempt; a cancellation of the handler must not reach the commit of
    `prepare()`, which is a third one. Neither BEGIN nor the transaction has one."""
    made: list[str] = []

    def counting(loop: Any, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(coroutine.__qualname__)
        return asyncio.Task(coroutine, loop=loop, **options)

    handlers = Handlers[Any]()
    handlers.handles(Step)(handler)
    async with queuert.connect(url("postgresql+asyncpg"), jobs=[Step], notify=None) as client:
        await start(client, 100)
        asyncio.get_running_loop().set_task_factory(counting)
        try:
            await Worker(client, handlers, concurrency=5).drain()
        finally:
            asyncio.get_running_loop().set_task_factory(None)
    assert balance(watch) == 100
    # Less than one for each job: those of the worker, and moves of the horizon.
    assert len(made) // 100 == tasks, Counter(made)


async def test_a_plain_end_needs_no_arrays(watch: Watcher, said: list[str]) -> None:
    handlers = Handlers[Any]()
    handlers.handles(Step)(complete_first)
    async with queuert.connect(url("postgresql+asyncpg"), jobs=[Step]) as client:
        await start(client, 20)
        said.clear()
        await Worker(client, handlers, concurrency=5).drain()
    last = [each for each in said if each.endswith("; COMMIT")]
    assert len(last) == 20
    assert all("queuert_complete_one" in each for each in last), last
    stored = "status = 'completed' AND attempt = 1 AND output::text = '1' AND completed_by IS NOT NULL"
    assert watch(f"SELECT count(*) FROM queuert_job WHERE {stored}") == [20]
    assert watch("SELECT sum(number) FROM queuert_tally WHERE what = 'completed'") == [20]
    assert watch("SELECT count(*) FROM queuert_running") == [0]


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_handler_that_returns_while_another_task_opens_its_transaction(watch: Watcher, scheme: str) -> None:
    """That task waits for the lock of the job. It is cancelled, and the attempt fails without waiting for the lock."""
    handlers, holder = Handlers[Any](backoff=SOON), Holder()
    opening, ended = set[asyncio.Task[None]](), list[BaseException]()

    async def elsewhere(attempt: Attempt[Step, Any]) -> None:
        try:
            async with attempt.complete() as tx:
                await tx.connection.execute(WRITE)
        except BaseException as error:
            ended.append(error)
            raise

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step, Any]) -> int:
        if attempt.number == 1:
            holder.take(attempt.chain_id)
            opening.add(asyncio.create_task(elsewhere(attempt)))
            await watch.until(WAITS)
            return 0
        return await complete_first(attempt)

    async with working(scheme, handlers) as client:
        with holder:
            (chain,) = await start(client)
            await eventually(lambda: ended)
            await watch.until_gone(WAITS)
        assert await client.wait(chain, timeout=PATIENCE) == 1
    assert isinstance(ended[0], asyncio.CancelledError)
    assert watch("SELECT attempt FROM queuert_job") == [2]
    assert balance(watch) == 1


# The settlement goes along with COMMIT, unless there is something to be told of it


async def test_with_psycopg_an_attempt_is_three_messages(watch: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    words: list[str] = []
    execute = psycopg.AsyncRawCursor.execute

    async def heard(self: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        if not any(each in query for each in SHARED):
            words.append(query)
        return await execute(self, query, *arguments, **options)

    monkeypatch.setattr(psycopg.AsyncRawCursor, "execute", heard)
    handlers = Handlers[Any]()
    handlers.handles(Step)(complete_first)
    async with queuert.connect(url("postgresql"), jobs=[Step]) as client:
        await start(client, 100)
        words.clear()
        await Worker(client, handlers, concurrency=5).drain()
    assert balance(watch) == 100
    assert len(words) // 100 == 2, Counter(words)  # and one of the user's own


class Dependent(EntryJob[int], name="dependent"):
    step: Chain[Step]


class Again(EntryJob[int, "Again"], name="again"):
    pass


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_dependents_that_are_added_while_the_claim_is_held(watch: Watcher, scheme: str) -> None:
    handlers, dependents = Handlers[Any](), list[str]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step, Any]) -> int:
        async with attempt.complete() as tx:
            await tx.connection.execute(WRITE)
            with queuert.connect_sync(database(), jobs=[Step, Dependent]) as other, other.transaction() as there:
                blocker = other.get_chain(attempt.chain_id, Step)
                assert blocker is not None
                dependents.append(other.start(there, Dependent(step=blocker)).id)
        return 1

    @handlers.handles(Dependent)
    async def dependent(attempt: Attempt[Dependent]) -> int:
        return attempt.job.step.output + 1

    # Nothing but the notification wakes the worker.
    async with (
        queuert.connect(url(scheme), jobs=[Step, Dependent]) as client,
        Worker(client, handlers, poll_interval=60),
    ):
        await start(client)
        await eventually(lambda: dependents)
        assert await client.wait(dependents[0], Dependent, timeout=PATIENCE) == 2
    assert balance(watch) == 1


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_next_id_that_exists(watch: Watcher, scheme: str) -> None:
    """The attempt fails, and leaves nothing of it."""
    same = str(uuid4())
    handlers, errors = Handlers[Any](backoff=SOON), list[Any]()

    @handlers.handles(Again)
    async def again(attempt: Attempt[Again, Any]) -> Again | int:
        errors.append(attempt.last_error)
        async with attempt.complete() as tx:
            await tx.connection.execute(WRITE)
        return Again() if attempt.number == 1 else 1

    async with queuert.connect(url(scheme), jobs=[Again], generate_id=lambda: same) as client:
        async with client.transaction() as tx:
            chain = await client.start(tx, Again())
        async with Worker(client, handlers, poll_interval=0.05):
            assert await client.wait(chain, timeout=PATIENCE) == 1
    assert [error and error["type"] for error in errors] == [None, "JobIdExists"]
    assert balance(watch) == 1


MISTAKES = {
    "a deferred constraint": ("INSERT INTO debt VALUES (7)", "ForeignKey"),
    "a swallowed error": ("SELECT 1 / 0", "TransactionMisused"),
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("mistake", MISTAKES)
async def test_a_mistake_that_shows_at_the_end(watch: Watcher, scheme: str, mistake: str) -> None:
    watch("CREATE TABLE debt (account int REFERENCES account DEFERRABLE INITIALLY DEFERRED)")
    handlers, errors = Handlers[Any](backoff=SOON), list[Any]()
    statement, error_type = MISTAKES[mistake]

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step, Any]) -> int:
        errors.append(attempt.last_error)
        async with attempt.complete() as tx:
            await tx.connection.execute(WRITE)
            if attempt.number == 1:
                with suppress(psycopg.Error, asyncpg.PostgresError):
                    await tx.connection.execute(statement)
        return 1

    try:
        async with working(scheme, handlers) as client:
            (chain,) = await start(client)
            assert await client.wait(chain, timeout=PATIENCE) == 1
    finally:
        watch("DROP TABLE debt")
    assert errors[0] is None
    assert error_type in errors[1]["type"]
    assert balance(watch) == 1


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_connection_that_is_lost_in_the_last_message(watch: Watcher, scheme: str) -> None:
    """The first attempt waits there for a row that another session has locked."""
    handlers, numbers = Handlers[Any](backoff=SOON), list[int]()
    waits = "wait_event_type = 'Lock' AND query LIKE '%queuert_last%COMMIT'"

    with psycopg.connect(database()) as other:

        @handlers.handles(Step)
        async def step(attempt: Attempt[Step, Any]) -> int:
            numbers.append(attempt.number)
            async with attempt.complete() as tx:
                await tx.connection.execute(WRITE)
                if attempt.number == 1:
                    other.execute("SELECT FROM queuert_job WHERE id = %s FOR UPDATE", (attempt.job_id,))
            return 1

        async with working(scheme, handlers) as client:
            (chain,) = await start(client)
            await watch.until(waits)
            watch.terminate_others(waits)
            other.rollback()
            assert await client.wait(chain, timeout=PATIENCE) == 1
    assert numbers == [1, 2]
    assert balance(watch) == 1


@needs_pgbouncer
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_through_pgbouncer(watch: Watcher, scheme: str) -> None:
    """In transaction mode, without prepared statements."""
    handlers = Handlers[Any]()
    handlers.handles(Step)(prepared("staged"))
    through = pgbouncer().through(database()).replace("postgresql://", f"{scheme}://")
    async with queuert.connect(through, jobs=[Step], prepare=False, listen_url=database()) as client:
        await start(client, 20)
        await Worker(client, handlers, concurrency=5).drain()
    assert balance(watch) == 20


# Who has lost the job


def cancel(chain_id: str) -> None:
    with queuert.connect_sync(database(), jobs=[Step]) as client, client.transaction() as tx:
        client.cancel(tx, chain_id)


def delete(chain_id: str) -> None:
    with queuert.connect_sync(database(), jobs=[Step]) as client, client.transaction() as tx:
        client.delete(tx, chain_id)


def take_over(chain_id: str) -> None:
    with (
        queuert.connect_sync(database(), jobs=[Step]) as client,
        client.transaction() as tx,
        client.take_over(tx, chain_id, Step) as current,
    ):
        current.settle(7)


def reap(chain_id: str) -> None:
    with queuert.connect_sync(database(), jobs=[Step]) as client, client.transaction() as tx:
        tx.connection.execute("UPDATE queuert_running SET leased_until = now() - interval '1 s'")
        client._run((client._engine.state.reap(["step"], [], 1, b"{}"), tx.connection))


LOST: dict[str, tuple[Callable[[str], None], str | None]] = {
    "cancelled": (cancel, "cancelled"),
    "not_found": (delete, None),
    "already_completed": (take_over, "completed"),
    "taken_by_another_worker": (reap, "completed"),  # by its second attempt
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("phase", ["complete", "atomic", "staged"])
@pytest.mark.parametrize("reason", LOST)
async def test_a_job_that_is_lost_before_the_transaction_begins(
    watch: Watcher, scheme: str, phase: Any, reason: str
) -> None:
    """Whatever the handler begins with: it is told why, and not a statement of its own is carried out."""
    handlers, lost = Handlers[Any](), list[str]()
    meddle, status = LOST[reason]

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step, Any]) -> int:
        if attempt.number == 1:
            meddle(attempt.chain_id)  # without awaiting: otherwise complete() would not be the first
        try:
            async with attempt.complete() if phase == "complete" else attempt.prepare(phase) as tx:
                await tx.connection.execute(WRITE)
        except OwnershipLost as error:
            lost.append(error.reason)
            raise
        return 1

    async with queuert.connect(url(scheme), jobs=[Step]) as client:
        (chain,) = await start(client)
        await Worker(client, handlers, cancel_on_abort=False).drain()
        found = await client.get_chain(chain)
        assert (None if found is None else found.status) == status
    assert lost == [reason]
    assert balance(watch) == (1 if meddle is reap else 0)


# Who waits


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_taking_over_waits_for_a_handler_that_began_with_complete(watch: Watcher, scheme: str) -> None:
    """Both come to the job first and to the user's row second, so neither holds what the other one waits for."""
    handlers, gate = Handlers[Any](), Gate()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step, Any]) -> int:
        async with attempt.complete() as tx:
            await tx.connection.execute(WRITE)
            await gate()
        return 1

    async with working(scheme, handlers) as client:
        (chain,) = await start(client)
        await gate.arrival()

        async def take_over_and_write() -> None:
            async with client.transaction() as tx, client.take_over(tx, chain) as current:
                await tx.connection.execute(WRITE)
                await current.settle(7)

        taking = asyncio.create_task(take_over_and_write())
        await watch.until("wait_event_type = 'Lock' AND query LIKE '%lock_chains%'")
        gate.open()
        with pytest.raises(ChainEnded):
            await patiently(taking)
        assert await client.wait(chain, timeout=PATIENCE) == 1
    assert balance(watch) == 1


class Holder:
    """Somebody who takes the job over, or only locks it, in a transaction that stays open: between the claim and the
    handler's own transaction, and without letting the event loop run."""

    def __init__(self) -> None:
        self._blocks = ExitStack()

    def __enter__(self) -> Holder:
        return self

    def take(self, chain_id: str) -> None:
        client = self._blocks.enter_context(queuert.connect_sync(database(), jobs=[Step]))
        self.tx = self._blocks.enter_context(client.transaction())
        self.current = self._blocks.enter_context(client.take_over(self.tx, chain_id, Step))

    def __exit__(self, *how: Any) -> None:
        self._blocks.__exit__(*how)


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_handler_that_begins_with_complete_waits_for_whoever_has_taken_over(
    watch: Watcher, scheme: str
) -> None:
    handlers, lost, holder = Handlers[Any](), list[str](), Holder()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step, Any]) -> int:
        holder.take(attempt.chain_id)
        try:
            async with attempt.complete() as tx:
                await tx.connection.execute(WRITE)
        except OwnershipLost as error:
            lost.append(error.reason)
            raise
        return 1

    async with working(scheme, handlers, cancel_on_abort=False) as client:
        with holder:
            (chain,) = await start(client)
            await watch.until(WAITS)
            holder.tx.connection.execute(WRITE)
            holder.current.settle(7)
        await eventually(lambda: lost)
        assert await client.wait(chain, timeout=PATIENCE) == 7
    assert lost == ["already_completed"]
    assert balance(watch) == 1


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_handler_that_waits_for_its_job_can_be_cancelled(watch: Watcher, scheme: str) -> None:
    """Its time is up while somebody else has locked the job: it ends before he lets go."""
    handlers, ended, holder = Handlers[Any](backoff=SOON), list[str](), Holder()

    @handlers.handles(Step, timeout=2)
    async def step(attempt: Attempt[Step, Any]) -> int:
        if attempt.number == 1:
            holder.take(attempt.chain_id)
        try:
            async with attempt.complete() as tx:
                await tx.connection.execute(WRITE)
        except asyncio.CancelledError:
            ended.append(str(attempt.signal.reason))
            raise
        return attempt.number

    async with working(scheme, handlers) as client:
        with holder:
            (chain,) = await start(client)
            await watch.until(WAITS)
            await eventually(lambda: ended)
            await watch.until_gone(WAITS)
        assert await client.wait(chain, timeout=PATIENCE) >= 2
    assert ended[0] == "timeout"
    assert balance(watch) == 1


@pytest.mark.parametrize("kind", ["async def", "def"])
async def test_the_lease_is_renewed_while_a_staged_handler_prepares(watch: Watcher, kind: str) -> None:
    """Renewals skip what is locked. After `prepare` the handler goes on, perhaps for long: its lease must be fresh."""
    handlers, begun, end = Handlers[Any](), threading.Event(), threading.Event()

    if kind == "def":

        @handlers.handles(Step)
        def plain(attempt: SyncAttempt[Step, Any]) -> int:
            with attempt.prepare("staged"):
                begun.set()
                end.wait(PATIENCE)
            return 1
    else:

        @handlers.handles(Step)
        async def step(attempt: Attempt[Step, Any]) -> int:
            async with attempt.prepare("staged"):
                begun.set()
                await asyncio.to_thread(end.wait, PATIENCE)
            return 1

    def leased_until() -> Any:
        (moment,) = watch("SELECT leased_until FROM queuert_running")
        return moment

    async with working("postgresql", handlers, lease=60, renew_interval=0.05) as client:
        (chain,) = await start(client)
        await eventually(begun.is_set)
        before = leased_until()
        await eventually(lambda: leased_until() > before)
        end.set()
        assert await client.wait(chain, timeout=PATIENCE) == 1


@pytest.mark.parametrize("phase", ["complete", "atomic"])
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_connection_that_is_lost_while_the_transaction_begins(watch: Watcher, scheme: str, phase: Any) -> None:
    """Nothing has happened yet: the attempt fails, and the next one does it."""
    handlers, errors, holder = Handlers[Any](backoff=SOON), list[Exception](), Holder()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step, Any]) -> int:
        if attempt.number == 1:
            holder.take(attempt.chain_id)
        try:
            async with attempt.complete() if phase == "complete" else attempt.prepare(phase) as tx:
                await tx.connection.execute(WRITE)
        except Exception as error:
            errors.append(error)
            raise
        return attempt.number

    async with working(scheme, handlers) as client:
        with holder:
            (chain,) = await start(client)
            await watch.until(WAITS)
            assert watch.terminate_others(WAITS) == 1
            await eventually(lambda: errors)
        assert await client.wait(chain, timeout=PATIENCE) == 2
    assert [type(error) for error in errors] == [StorageUnavailable]
    assert balance(watch) == 1


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_lock_that_does_not_come(watch: Watcher, scheme: str) -> None:
    """The server's limits hold as they do everywhere: the attempt fails, and the connection is good for the next."""
    handlers, errors, holder = Handlers[Any](backoff=SOON), list[Exception](), Holder()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step, Any]) -> int:
        if attempt.number == 1:
            holder.take(attempt.chain_id)
        try:
            async with attempt.complete() as tx:
                await tx.connection.execute(WRITE)
        except Exception as error:
            errors.append(error)
            holder.__exit__(None, None, None)
            raise
        return attempt.number

    watch(f"ALTER DATABASE {watch('SELECT current_database()')[0]} SET lock_timeout = '200ms'")
    try:
        async with working(scheme, handlers) as client:
            (chain,) = await start(client)
            assert await client.wait(chain, timeout=PATIENCE) == 2
            record = await job(client, chain)
            assert record.attempt_number == 2
    finally:
        watch(f"ALTER DATABASE {watch('SELECT current_database()')[0]} RESET lock_timeout")
    assert [type(error) for error in errors] == [StorageBusy]
    assert balance(watch) == 1
