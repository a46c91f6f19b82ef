"""Callbacks of a handler: after its phase has committed, or was rolled back."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Literal

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import eventually
from tests.behaviour.working import begin, outcome, output, working

from queuert import Attempt, EntryJob, Handlers, InvalidArgument, SyncAttempt

pytestmark = pytest.mark.drivers

Kind = Literal["async", "def"]


class Mail(EntryJob[str], name="mail"):
    pass


@pytest.mark.parametrize("kind", ["async", "def"])
@pytest.mark.parametrize("phase", ["complete", "atomic", "staged"])
async def test_after_the_commit_of_a_phase_and_the_rollback_of_another(
    setting: Setting, kind: Kind, phase: Literal["complete", "atomic", "staged"]
) -> None:
    handlers, log = Handlers[Any](), list[str]()

    def register(tx: Any, number: int) -> None:
        tx.after_commit(lambda: log.append(f"{number} committed"))
        tx.after_rollback(lambda: log.append(f"{number} rolled back"))
        if number == 1:
            raise ValueError("the first attempt fails")

    if kind == "async":

        @handlers.handles(Mail)
        async def handle(attempt: Attempt[Mail]) -> str:
            async with attempt.complete() if phase == "complete" else attempt.prepare(phase) as tx:
                register(tx, attempt.number)

                async def awaited() -> None:
                    await asyncio.sleep(0)
                    log.append("awaited")

                tx.after_commit(awaited)
            return ",".join(log)

    else:

        @handlers.handles(Mail)
        def handle_plainly(attempt: SyncAttempt[Mail]) -> str:
            with attempt.complete() if phase == "complete" else attempt.prepare(phase) as tx:
                register(tx, attempt.number)
                with pytest.raises(InvalidArgument, match="pass a plain function"):
                    tx.after_commit(asyncio.Event().wait)
                tx.after_commit(lambda: log.append("awaited"))
            return ",".join(log)

    async with working(setting, [Mail], handlers) as client:
        seen = await outcome(client, Mail())
        # A staged phase commits at the end of its block, the others with the attempt.
        assert seen == ("1 rolled back,2 committed,awaited" if phase == "staged" else "1 rolled back")
        await eventually(lambda: len(log) == 3)
        assert log == ["1 rolled back", "2 committed", "awaited"]


@pytest.mark.parametrize("kind", ["async", "def"])
async def test_failures_of_callbacks_are_counted_and_change_nothing(setting: Setting, kind: Kind) -> None:
    handlers, called = Handlers[Any](), threading.Event()

    def fails() -> None:
        raise ValueError("no mail server")

    if kind == "async":

        @handlers.handles(Mail)
        async def handle(attempt: Attempt[Mail]) -> str:
            async with attempt.complete() as tx:
                tx.after_commit(fails)
                tx.after_commit(called.set)
                return f"attempt {attempt.number}"

    else:

        @handlers.handles(Mail)
        def handle_plainly(attempt: SyncAttempt[Mail]) -> str:
            with attempt.complete() as tx:
                tx.after_commit(fails)
                tx.after_commit(called.set)
                return f"attempt {attempt.number}"

    async with working(setting, [Mail], handlers) as client:
        chain = await begin(client, Mail())
        assert await output(client, chain) == "attempt 1"
        await eventually(lambda: client.hook_failures == 1 and called.is_set())
