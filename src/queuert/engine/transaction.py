"""Transactions as the client hands them around, and the work that waits for their commit.

`Hooks` is a generic container of things to do after the commit. A hook buffers state while the
transaction runs; a savepoint's rollback puts that state back; a rollback throws it away; after the
commit each hook's steps are carried out. A step that fails is logged and counted, and neither
undoes nor hides the commit. The user's own callbacks are such hooks, each one alone. Those for a
rollback run when the part of the transaction that they were registered in is rolled back.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from typing_extensions import TypeVar

from queuert.base.failure_log import FailureLog
from queuert.base.transaction import Callback, Transaction
from queuert.engine.callbacks import Step, UserCallback
from queuert.errors import TransactionClosed

logger = logging.getLogger("queuert.transaction")

Conn = TypeVar("Conn", default=Any)


Announce = Callable[[Mapping[Any, Sequence[str]]], Awaitable[None] | None]
"""Sends what is to be published, by topic, without the caller. If it returns something, that is to
be awaited."""


class Hook(Protocol):
    """One kind of after-commit work."""

    order: int
    """Hooks are flushed in this order, lowest first."""

    def checkpoint(self) -> Callable[[], None]:
        """Remember the state as it is; the function returned puts it back."""
        ...

    def steps(self) -> Iterator[Step]:
        """What is to be done after the commit.

        If a step fails, the rest of this hook is skipped.
        """
        ...


H = TypeVar("H", bound=Hook)


class Hooks:
    """The work that waits for the end of one transaction: after its commit, by name, and after its
    rollback.

    Args:
        blocking: A sync client's: nothing can be awaited.
        announce: Sends the notifications (default: `flush` does, and waits for them).
    """

    __slots__ = ("_after_rollback", "_blocking", "_by_name", "_ended", "_undone", "announce", "failures")

    def __init__(self, *, blocking: bool = False, announce: Announce | None = None) -> None:
        self.announce = announce
        self._by_name: dict[Hashable, Hook] = {}
        self._after_rollback: list[UserCallback] = []
        self._undone: list[UserCallback] = []
        """Callbacks of parts that are rolled back. They have yet to run."""
        self._blocking = blocking
        self._ended = False
        self.failures = 0

    def use(self, name: str, make: Callable[[], H]) -> H:
        """The hook of this name, made on first use."""
        hook = self._by_name.get(name)
        if hook is None:
            hook = self._by_name[name] = make()
        return hook  # type: ignore[return-value]  # one name is always one type

    def after_commit(self, callback: Callback) -> None:
        self._by_name[object()] = self._checked("after_commit", callback)

    def after_rollback(self, callback: Callback) -> None:
        self._after_rollback.append(self._checked("after_rollback", callback))

    def _checked(self, method: str, callback: Callback) -> UserCallback:
        if self._ended:
            raise TransactionClosed(f"{method}() of a transaction that has ended: nothing would call it")
        return UserCallback(method, callback, blocking=self._blocking)

    def checkpoint(self) -> Callable[[], None]:
        known = [(name, hook, hook.checkpoint()) for name, hook in self._by_name.items()]
        length = len(self._after_rollback)

        def roll_back() -> None:
            # Not those that a savepoint further out has dropped already.
            self._by_name = {name: hook for name, hook, _ in known if name in self._by_name}
            for _, _, restore in known:
                restore()
            self._undone += self._after_rollback[length:]
            del self._after_rollback[length:]

        return roll_back

    @property
    def has_callbacks(self) -> bool:
        """Whether there are callbacks for a rollback."""
        return bool(self._after_rollback)

    @property
    def has_undone(self) -> bool:
        """Whether callbacks wait for `flush_undone`."""
        return bool(self._undone)

    def discard(self) -> int:
        """Drop everything: it is not known what happened to the transaction.

        Returns how many callbacks of the user's own will never run.
        """
        callbacks = [hook for hook in self._by_name.values() if isinstance(hook, UserCallback)]
        number = len(callbacks) + len(self._after_rollback)
        self._by_name.clear()
        self._after_rollback.clear()
        self._ended = True
        return number

    def roll_back(self) -> None:
        """All of it is rolled back."""
        self._undone += self._after_rollback
        self.discard()

    async def flush(self, log: FailureLog | None = None) -> None:
        """It is committed: do what waited for that."""
        log = log or FailureLog(logger)
        self._ended = True
        self._after_rollback.clear()
        for hook in self._in_order():
            if isinstance(hook, UserCallback):
                await self._carry_out(hook, hook.name, log, COMMITTED)
            else:
                await self._carry_out(hook, type(hook).__name__, log, NOTHING_LOST)

    async def flush_undone(self, log: FailureLog | None = None) -> None:
        """Some of it, or all, is rolled back: call the callbacks that waited for that."""
        log = log or FailureLog(logger)
        callbacks, self._undone = self._undone, []
        for callback in callbacks:
            await self._carry_out(callback, callback.name, log, ROLLED_BACK)

    async def _carry_out(self, hook: Hook, name: str, log: FailureLog, message: str) -> None:
        did_something = False
        try:
            for step in hook.steps():
                pending = step()
                if pending is not None and inspect.isawaitable(pending):
                    await pending
                did_something = True
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            self.failures += 1
            log.failed(name, error, message, name)
        else:
            if did_something:
                log.worked(name)

    def _in_order(self) -> list[Hook]:
        hooks = list(self._by_name.values())
        self._by_name = {}
        if len(hooks) > 1:
            hooks.sort(key=lambda hook: hook.order)
        return hooks


class Count:
    """A number that threads add to."""

    def __init__(self) -> None:
        self.number = 0
        self._lock = threading.Lock()

    def add(self, number: int) -> None:
        with self._lock:
            self.number += number


NOTHING_LOST = "after-commit work failed (%s); the transaction is committed, nothing is lost"
COMMITTED = "the callback %s of after_commit() failed; the transaction is committed"
ROLLED_BACK = "the callback %s of after_rollback() failed; the transaction is rolled back"


def _is_cancelled() -> bool:
    """Whether the running task itself was cancelled, and not something that a callback awaits."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # there is no event loop
        return False
    return task is not None and task.cancelling() > 0


class Enlisted:
    """The work of a transaction whose end the provider hears of (see `queuert.ports.provider`).

    Args:
        flush: Does what waited for the commit.
        flush_undone: Calls the callbacks of what is rolled back.
        hooks: The work.
    """

    __slots__ = ("_flush", "_flush_undone", "hooks")

    def __init__(
        self,
        flush: Callable[[Hooks], Awaitable[None] | None],
        flush_undone: Callable[[Hooks], Awaitable[None] | None],
        hooks: Hooks,
    ) -> None:
        self.hooks = hooks
        self._flush = flush
        self._flush_undone = flush_undone

    def checkpoint(self) -> Callable[[], None]:
        restore = self.hooks.checkpoint()

        def roll_back() -> None:
            restore()
            self._call_undone()

        return roll_back

    def flush(self) -> Awaitable[None] | None:
        return self._flush(self.hooks)

    def rolled_back(self) -> None:
        self.hooks.roll_back()
        self._call_undone()

    def _call_undone(self) -> None:
        if self.hooks.has_undone:
            self._flush_undone(self.hooks)


class OpenTransaction(Transaction[Conn]):
    """A transaction as clients and workers see it."""

    __slots__ = ("_given_back", "block", "commits", "first", "hooks", "joined", "provider")

    def __init__(self, connection: Conn, provider: object, *, joined: bool, hooks: Hooks | None = None) -> None:
        self.hooks = Hooks() if hooks is None else hooks
        super().__init__(connection, self.hooks)
        self._given_back = False
        self.joined = joined
        self.provider = provider
        self.first: Any = None
        """The result of the program that the transaction began with."""
        self.block: Any = None
        """The block of the provider, for a transaction of our own."""
        self.commits = False
        """COMMIT was sent, or is about to be."""

    def end(self) -> None:
        """From here on the transaction cannot be used any more."""
        self._is_open = False

    def give_back(self) -> None:
        """It is committed or rolled back, and others may use its connection."""
        self._given_back = True

    def connection_in_use(self) -> Conn | None:
        """The connection, also while the transaction is being ended."""
        return None if self._given_back else self._connection
