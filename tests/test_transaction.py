"""After-commit hooks: their order, their state under savepoints, and that no failure of theirs undoes a commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.jobs import Greet
from tests.support.worlds import KINDS, Database, Flavour, World, start, status_of

from queuert.adapters.in_process import InProcessNotify
from queuert.base.blocking import run_blocking
from queuert.engine.callbacks import Step
from queuert.engine.notifications import Notifications
from queuert.engine.transaction import Hooks, OpenTransaction
from queuert.errors import TransactionClosed
from queuert.ports.notify import Topic


class Recorder:
    """A hook that says its words after the commit."""

    def __init__(self, log: list[str], order: int = 0, *, awaitable: bool = False) -> None:
        self.order = order
        self.words: list[str] = []
        self._log = log
        self._awaitable = awaitable

    def checkpoint(self) -> Callable[[], None]:
        length = len(self.words)

        def restore() -> None:
            del self.words[length:]

        return restore

    def steps(self) -> Iterator[Step]:
        for word in self.words:
            if word == "fail here":
                raise ValueError(word)
            yield self._awaited(word) if self._awaitable else self._plain(word)

    def _plain(self, word: str) -> Step:
        def step() -> None:
            if word == "fail":
                raise ValueError(word)
            self._log.append(word)

        return step

    def _awaited(self, word: str) -> Step:
        plain = self._plain(word)

        async def step() -> None:
            plain()

        return step


async def flush(hooks: Hooks, flavour: str) -> None:
    if flavour == "async":
        await hooks.flush()
    else:
        run_blocking(hooks.flush())


@pytest.fixture(params=["async", "sync"])
def flavour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_hook_is_made_once_and_flushed_once(flavour: str) -> None:
    hooks, log = Hooks(), list[str]()
    first = hooks.use("a", lambda: Recorder(log))
    assert hooks.use("a", lambda: Recorder(log)) is first
    first.words.append("said")
    await flush(hooks, flavour)
    await flush(hooks, flavour)
    assert (log, hooks.failures) == (["said"], 0)


async def test_hooks_are_flushed_by_their_order_then_as_they_came(flavour: str) -> None:
    hooks, log = Hooks(), list[str]()
    for name, order in (("late", 5), ("notifications", Notifications.order), ("observer", 0), ("second observer", 0)):
        hooks.use(name, lambda order=order: Recorder(log, order)).words.append(name)  # type: ignore[misc]
    await flush(hooks, flavour)
    assert log == ["observer", "second observer", "notifications", "late"]


async def test_a_step_may_be_awaitable_or_plain() -> None:
    hooks, log = Hooks(), list[str]()
    hooks.use("awaited", lambda: Recorder(log, awaitable=True)).words += ["a", "b"]
    hooks.use("plain", lambda: Recorder(log)).words += ["c"]
    await hooks.flush()
    assert (log, hooks.failures) == (["a", "b", "c"], 0)


@pytest.mark.parametrize("how", ["fail", "fail here"])
async def test_a_failing_hook_is_logged_and_counted_and_the_others_go_on(
    flavour: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    hooks, log = Hooks(), list[str]()
    hooks.use("bad", lambda: Recorder(log)).words += ["before", how, "skipped"]
    hooks.use("good", lambda: Recorder(log, 1)).words += ["after"]
    with caplog.at_level(logging.ERROR, logger="queuert.transaction"):
        await flush(hooks, flavour)
    assert (log, hooks.failures) == (["before", "after"], 1)
    (record,) = caplog.records
    assert "the transaction is committed" in record.getMessage()
    assert "Recorder" in record.getMessage()
    assert record.exc_info is not None


async def test_a_checkpoint_restores_state_and_forgets_newer_hooks(flavour: str) -> None:
    hooks, log = Hooks(), list[str]()
    old = hooks.use("old", lambda: Recorder(log))
    old.words.append("kept")
    roll_back = hooks.checkpoint()
    old.words.append("dropped")
    hooks.use("new", lambda: Recorder(log)).words.append("dropped too")
    roll_back()
    hooks.use("new", lambda: Recorder(log)).words.append("made again")
    await flush(hooks, flavour)
    assert log == ["kept", "made again"]


async def test_checkpoints_nest(flavour: str) -> None:
    hooks, log = Hooks(), list[str]()
    outer = hooks.checkpoint()
    hook = hooks.use("a", lambda: Recorder(log))
    hook.words.append("one")
    inner = hooks.checkpoint()
    hook.words.append("two")
    inner()
    hook.words.append("three")
    assert hook.words == ["one", "three"]
    outer()
    await flush(hooks, flavour)
    assert log == []


async def test_discarded_hooks_do_nothing(flavour: str) -> None:
    hooks, log = Hooks(), list[str]()
    hooks.use("a", lambda: Recorder(log)).words.append("x")
    hooks.discard()
    await flush(hooks, flavour)
    assert log == []


def test_a_transaction_that_has_ended_gives_no_connection() -> None:
    tx = OpenTransaction("the connection", object(), joined=False)
    assert (tx.connection, tx.is_open) == ("the connection", True)
    tx.end()
    tx.end()
    assert not tx.is_open
    with pytest.raises(TransactionClosed, match="open another"):
        _ = tx.connection


# Notifications are such a hook


class Published:
    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def provide_wake_hints(self, counts: Any) -> None:
        self.calls.append(("hints", dict(counts)))

    def publish(self, topic: Topic, values: Any) -> None:
        self.calls.append((topic, list(values)))


def test_notifications_are_sent_once_for_each_thing_hints_before_the_wake_up() -> None:
    published, hooks = Published(), Hooks()
    notifications = hooks.use("notifications", lambda: Notifications(published))
    for name in ("b", "a", "b"):
        notifications.add("job_scheduled", name)
    for chain in ("2", "1", "2"):
        notifications.add("chain_ended", chain)
    notifications.add("ownership_lost", "j")
    notifications.add("ownership_lost", "j")
    run_blocking(hooks.flush())
    assert published.calls == [
        ("ownership_lost", ["j"]),
        ("chain_ended", ["2", "1"]),
        ("hints", {"b": 2, "a": 1}),
        ("job_scheduled", ["b", "a"]),
    ]


def test_notifications_that_were_rolled_back_are_not_sent() -> None:
    published, hooks = Published(), Hooks()
    notifications = hooks.use("notifications", lambda: Notifications(published))
    notifications.add("job_scheduled", "kept")
    roll_back = hooks.checkpoint()
    notifications.add("job_scheduled", "dropped")
    notifications.add("chain_ended", "dropped")
    notifications.add("ownership_lost", "dropped")
    roll_back()
    run_blocking(hooks.flush())
    assert published.calls == [("hints", {"kept": 1}), ("job_scheduled", ["kept"])]


def test_nothing_to_say_is_not_said() -> None:
    published, hooks = Published(), Hooks()
    hooks.use("notifications", lambda: Notifications(published))
    run_blocking(hooks.flush())
    assert published.calls == []


def test_without_a_budget_nobody_is_woken() -> None:
    class NoHints(Published):
        def provide_wake_hints(self, counts: Any) -> None:
            raise ConnectionError

    published, hooks = NoHints(), Hooks()
    notifications = hooks.use("notifications", lambda: Notifications(published))
    notifications.add("job_scheduled", "a")
    notifications.add("chain_ended", "1")
    run_blocking(hooks.flush())
    assert (published.calls, hooks.failures) == ([("chain_ended", ["1"])], 1)


# In a client


def hooks_of(tx: Any) -> Hooks:
    assert isinstance(tx, OpenTransaction)
    return tx.hooks


class Failing(InProcessNotify):
    async def publish(self, topic: Topic, values: Any) -> None:
        raise ConnectionError("the channel is gone")


@pytest.fixture(params=KINDS, ids="-".join)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    kind: tuple[Database, Flavour] = request.param
    return World(*kind, tmp_path)


async def test_a_failing_channel_does_not_mask_the_commit(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async with world.client(notify=Failing(world.hub)) as client:
        first = await start(client, Greet())
        second = await start(client, Greet())
        own = world.connection()
        async with client.after_commit(own.raw) as tx:
            own.begin()
            third = await client.start(tx, Greet())
            own.commit()
        own.close()
        assert [await status_of(client, chain) for chain in (first, second, third)] == ["pending"] * 3
        assert client.hook_failures == 3
    # The same failure is logged once.
    assert [record.name for record in caplog.records] == ["queuert.transaction"]


async def test_observers_come_before_notifications_and_after_the_commit(world: World) -> None:
    log: list[str] = []
    world.hub.subscriptions.add("job_scheduled", lambda name: log.append(f"notified of {name}"))
    async with world.client() as client:
        async with client.transaction() as tx:
            await client.start(tx, Greet())
            hooks_of(tx).use("observer", lambda: Recorder(log)).words.append("observed")
            assert log == []
        assert log == ["observed", "notified of greet"]


async def test_hooks_follow_savepoints_and_rollbacks(world: World) -> None:
    log: list[str] = []
    async with world.client() as client:
        async with client.transaction() as tx:
            hook = hooks_of(tx).use("observer", lambda: Recorder(log))
            hook.words.append("kept")
            with pytest.raises(ZeroDivisionError):
                async with client.savepoint(tx):
                    hook.words.append("dropped")
                    raise ZeroDivisionError
        assert log == ["kept"]
        with pytest.raises(ZeroDivisionError):
            async with client.transaction() as tx:
                hooks_of(tx).use("observer", lambda: Recorder(log)).words.append("never")
                raise ZeroDivisionError
        assert log == ["kept"]


async def test_after_commit_work_may_open_a_transaction_of_its_own(world: World) -> None:
    async with world.client() as client:

        class Again(Recorder):
            def steps(self) -> Iterator[Step]:
                yield self._start_async if world.is_async else self._start

            async def _start_async(self) -> None:
                await start(client, Greet())

            def _start(self) -> None:
                sync: Any = client.sync  # type: ignore[attr-defined]
                with sync.transaction() as tx:
                    sync.start(tx, Greet())

        async with client.transaction() as tx:
            await client.start(tx, Greet())
            hooks_of(tx).use("again", lambda: Again([]))
        assert client.hook_failures == 0
    assert world.count() == 2
