"""What a handler does before it first waits for something decides how its phases and transactions go together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.behaviour.conftest import Setting, ledger, write
from tests.behaviour.steps import Gate
from tests.behaviour.working import begin, failed, outcome, output, working

from queuert import Attempt, EntryJob, Handlers, Middleware, PhaseError, PrepareAfterAutoSetup, Transaction

pytestmark = pytest.mark.drivers


class Task(EntryJob[str], name="task"):
    pass


async def lines(client: Any, tx: Transaction[Any] | None = None) -> int:
    """The number of lines in the ledger, as seen from inside a transaction or from outside."""
    return len((await client.list_jobs("ledger-entry", tx=tx)).items)


async def test_staged_prepare_commits_at_the_end_of_its_block(setting: Setting) -> None:
    handlers, gate = Handlers(), Gate()

    @handlers.handles(Task)
    async def task(attempt: Attempt[Task]) -> str:
        async with attempt.prepare("staged") as tx:
            await write(attempt.client, tx, "prepared")
        await gate()
        async with attempt.complete() as tx:
            await write(attempt.client, tx, "completed")
            return "done"

    async with working(setting, [Task], handlers) as client:
        chain = await begin(client, Task())
        await gate.arrival()
        assert await ledger(client) == ["prepared"]
        async with client.transaction() as tx:  # nobody holds a transaction while the handler works
            await write(client, tx, "meanwhile")
        gate.open()
        assert await output(client, chain) == "done"
        assert await ledger(client) == ["prepared", "meanwhile", "completed"]


async def test_atomic_prepare_and_complete_share_one_transaction(setting: Setting) -> None:
    handlers, gate = Handlers(), Gate()
    seen: list[int] = []

    @handlers.handles(Task)
    async def task(attempt: Attempt[Task]) -> str:
        async with attempt.prepare("atomic") as first:
            await write(attempt.client, first, "prepared")
        await gate()
        async with attempt.complete() as second:
            seen.append(await lines(attempt.client, second))
            assert first is second
            return "done"

    async with working(setting, [Task], handlers) as client:
        chain = await begin(client, Task())
        await gate.arrival()
        assert await ledger(client) == []
        gate.open()
        assert await output(client, chain) == "done"
        assert await ledger(client) == ["prepared"]
        assert seen == [1]


async def test_atomic_prepare_without_complete_commits_with_the_completion(setting: Setting) -> None:
    handlers, gate = Handlers(), Gate()

    @handlers.handles(Task)
    async def task(attempt: Attempt[Task]) -> str:
        async with attempt.prepare("atomic") as tx:
            await write(attempt.client, tx, "prepared")
        await gate()
        return "done"

    async with working(setting, [Task], handlers) as client:
        chain = await begin(client, Task())
        await gate.arrival()
        assert await ledger(client) == []
        gate.open()
        assert await output(client, chain) == "done"
        assert await ledger(client) == ["prepared"]


@pytest.mark.parametrize("mode", ["atomic", "staged"])
async def test_what_prepare_wrote_survives_a_failure_only_if_staged(setting: Setting, mode: Any) -> None:
    handlers = Handlers()

    @handlers.handles(Task, max_attempts=1)
    async def task(attempt: Attempt[Task]) -> str:
        async with attempt.prepare(mode) as tx:
            await write(attempt.client, tx, "prepared")
        async with attempt.complete() as tx:
            await write(attempt.client, tx, "completed")
        raise RuntimeError("after both")

    async with working(setting, [Task], handlers) as client:
        assert (await failed(client, Task()))["message"] == "after both"
        assert await ledger(client) == (["prepared"] if mode == "staged" else [])


async def test_complete_first_is_atomic_so_nothing_can_be_prepared_after_it(setting: Setting) -> None:
    handlers = Handlers()

    @handlers.handles(Task, max_attempts=1)
    async def task(attempt: Attempt[Task]) -> str:
        async with attempt.complete() as tx:
            await write(attempt.client, tx, "completed")
        async with attempt.prepare("staged"):
            raise AssertionError("this must not be reached")

    async with working(setting, [Task], handlers) as client:
        assert (await failed(client, Task()))["type"] == PrepareAfterAutoSetup.__name__
        assert await ledger(client) == []


async def test_prepare_after_the_first_suspension_is_too_late(setting: Setting) -> None:
    handlers = Handlers()

    @handlers.handles(Task)
    async def task(attempt: Attempt[Task]) -> str:
        await asyncio.sleep(0)
        with pytest.raises(PrepareAfterAutoSetup, match="first"):
            async with attempt.prepare("staged"):
                raise AssertionError("this must not be reached")
        async with attempt.complete() as tx:  # the attempt can go on without it
            await write(attempt.client, tx, "completed")
            return "done"

    async with working(setting, [Task], handlers) as client:
        assert await outcome(client, Task()) == "done"
        assert await ledger(client) == ["completed"]


async def test_awaiting_what_does_not_suspend_does_not_count(setting: Setting) -> None:
    handlers = Handlers()

    async def at_once() -> None:
        return

    @handlers.handles(Task)
    async def task(attempt: Attempt[Task]) -> str:
        await at_once()
        ready = asyncio.Event()
        ready.set()
        await ready.wait()
        async with attempt.prepare("atomic"):
            pass
        return "prepared"

    async with working(setting, [Task], handlers) as client:
        assert await outcome(client, Task()) == "prepared"


class Slow(Middleware):
    async def wrap_handler(self, attempt: Any, call_next: Callable[[], Awaitable[Any]]) -> Any:
        await asyncio.sleep(0)
        result = await call_next()
        await asyncio.sleep(0)
        return result


async def test_middleware_that_suspends_before_the_handler_does_not_count(setting: Setting) -> None:
    handlers = Handlers(middleware=[Slow(), Slow()])

    @handlers.handles(Task)
    async def task(attempt: Attempt[Task]) -> str:
        async with attempt.prepare("atomic") as tx:
            await write(attempt.client, tx, "prepared")
        return "done"

    async with working(setting, [Task], handlers) as client:
        assert await outcome(client, Task()) == "done"
        assert await ledger(client) == ["prepared"]


@pytest.mark.parametrize("phase", ["prepare", "complete"])
async def test_each_phase_is_for_once(setting: Setting, phase: str) -> None:
    handlers = Handlers()

    @handlers.handles(Task)
    async def task(attempt: Attempt[Task]) -> str:
        async with getattr(attempt, phase)():
            pass
        with pytest.raises(PhaseError, match=rf"{phase}\(\) can be used once"):
            async with getattr(attempt, phase)():
                raise AssertionError("this must not be reached")
        return "done"

    async with working(setting, [Task], handlers) as client:
        assert await outcome(client, Task()) == "done"


@pytest.mark.parametrize(
    ("outer", "inner"), [("prepare", "complete"), ("complete", "prepare"), ("complete", "complete")]
)
async def test_phases_do_not_nest(setting: Setting, outer: str, inner: str) -> None:
    handlers = Handlers()

    @handlers.handles(Task, max_attempts=1)
    async def task(attempt: Attempt[Task]) -> str:
        async with getattr(attempt, outer)() as tx:
            await write(attempt.client, tx, "outer")
            async with getattr(attempt, inner)():
                return "this must not be reached"

    async with working(setting, [Task], handlers) as client:
        error = await failed(client, Task())
        assert error["type"] == "PhaseError"
        assert f"inside {outer}()" in error["message"]
        assert await ledger(client) == []


async def test_an_unknown_mode_is_refused(setting: Setting) -> None:
    handlers = Handlers()

    @handlers.handles(Task, max_attempts=1)
    async def task(attempt: Attempt[Task]) -> str:
        wrong: Any = "eager"
        async with attempt.prepare(wrong):
            raise AssertionError("this must not be reached")

    async with working(setting, [Task], handlers) as client:
        assert "'eager'" in (await failed(client, Task()))["message"]


async def test_a_handler_that_returns_inside_a_phase_has_failed(setting: Setting) -> None:
    handlers = Handlers()
    kept: list[Any] = []

    @handlers.handles(Task, max_attempts=1)
    async def task(attempt: Attempt[Task]) -> str:
        block = attempt.complete()
        kept.append(block)
        tx = await block.__aenter__()
        await write(attempt.client, tx, "completed")
        return "done"

    @handlers.handles(Other)
    async def other(attempt: Attempt[Other]) -> str:
        return "works"

    async with working(setting, [Task, Other], handlers) as client:
        error = await failed(client, Task())
        assert (error["type"], "inside complete()" in error["message"]) == ("PhaseError", True)
        assert await ledger(client) == []
        assert await outcome(client, Other()) == "works"


class Other(EntryJob[str], name="other"):
    pass


async def test_a_phase_may_be_opened_in_a_task_of_the_handler(setting: Setting) -> None:
    handlers = Handlers()

    @handlers.handles(Task)
    async def task(attempt: Attempt[Task]) -> str:
        async def in_a_task() -> str:
            async with attempt.complete() as tx:
                await write(attempt.client, tx, "completed")
            return "done"

        return await asyncio.create_task(in_a_task())

    async with working(setting, [Task], handlers) as client:
        assert await outcome(client, Task()) == "done"
        assert await ledger(client) == ["completed"]
