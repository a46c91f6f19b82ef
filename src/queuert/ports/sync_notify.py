"""A notify adapter, as sync clients use it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar, cast

from queuert.base.loop_thread import LoopUser, Runner
from queuert.errors import ClientClosed
from queuert.ports.notify import Callback, NotifyAdapter, Topic

T = TypeVar("T")

SyncDispose = Callable[[], None]


class SyncNotify:
    """Runs an adapter on the process's event loop thread. Callbacks are called on that thread.

    An `immediate` adapter needs no event loop: it runs in the calling thread.
    """

    def __init__(self, adapter: NotifyAdapter, runner: Runner | None = None) -> None:
        self.adapter = adapter
        self._runner = runner or (AtOnce() if getattr(adapter, "immediate", False) else LoopUser())
        self._closed = False
        self.immediate: bool = getattr(adapter, "immediate", False)
        """Whether publishing takes no time, so that nothing is gained by doing it in the
        background."""

    def publish(self, topic: Topic, values: Sequence[str]) -> None:
        self._run(lambda: self.adapter.publish(topic, values))

    def provide_wake_hints(self, counts: Mapping[str, int]) -> None:
        self._run(lambda: self.adapter.provide_wake_hints(counts))

    def listen(self, topic: Topic, callback: Callback) -> SyncDispose:
        dispose = self._run(lambda: self.adapter.listen(topic, callback))

        def dispose_unless_closed() -> None:
            if not self._closed:
                self._runner.run_or_begin(dispose)

        return dispose_unless_closed

    def begin(self, work: Callable[[], Awaitable[None]]) -> Future[None]:
        """Start a coroutine that uses the adapter, where the adapter runs."""
        self._check_open()
        return self._runner.begin(work)

    def run(self, work: Callable[[NotifyAdapter], Awaitable[T]]) -> T:
        """Run a coroutine that uses the adapter, where the adapter runs."""
        return self._run(lambda: work(self.adapter))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._runner.close(self.adapter.close)

    def _run(self, work: Callable[[], Awaitable[T]]) -> T:
        self._check_open()
        return self._runner.run(work)

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("notify adapter")


class AtOnce(Runner):
    """Runs coroutines that never suspend, without an event loop."""

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        coroutine = cast("Coroutine[Any, Any, T]", work())
        try:
            coroutine.send(None)
        except StopIteration as done:
            return cast(T, done.value)
        coroutine.close()
        raise RuntimeError("an adapter with `immediate = True` must not wait in its coroutines")
