"""What waits for the end of an atomic block.

Django calls `on_commit` functions after the commit. It silently drops those of a block that is
rolled back. So we wrap the three methods of a connection that drop them, and check which are gone.
`set_autocommit` is the end of a whole transaction: Django itself calls `on_commit` functions there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from queuert.adapters.django.connection import Wrapper
from queuert.ports.provider import AfterCommitWork

logger = logging.getLogger("queuert.transaction")

_ATTRIBUTE = "_queuert_watch"


class OnCommit:
    """The callback that Django calls after the commit."""

    def __init__(self, provider: object, work: AfterCommitWork) -> None:
        self.__qualname__ = "queuert"  # for Django's log
        self.provider = provider
        self.work: Any = work
        self.done = False

    def __call__(self) -> None:
        self.done = True
        self.work.flush()


class Watch:
    """Attached to one of Django's connections, for its whole life."""

    def __init__(self, wrapper: Wrapper) -> None:
        self._wrapper = wrapper
        self._waiting: list[OnCommit] = []
        self._dropped: list[OnCommit] = []
        for name in ("rollback", "savepoint_rollback", "close", "set_autocommit"):
            setattr(wrapper, name, self._and_look(name, getattr(wrapper, name)))

    def add(self, waiting: OnCommit) -> None:
        self._waiting = [other for other in self._waiting if not other.done]
        self._waiting.append(waiting)

    def _and_look(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            try:
                return method(*arguments, **options)
            finally:
                if self._waiting:
                    self._look()
                # After the rollback of a whole transaction, Django still has to leave its block.
                if self._dropped and name != "rollback":
                    self._tell()

        return call

    def _look(self) -> None:
        """Those that Django has dropped are rolled back."""
        kept = {id(registered[1]) for registered in self._wrapper.run_on_commit}
        self._dropped += [each for each in self._waiting if id(each) not in kept and not each.done]
        self._waiting = [each for each in self._waiting if id(each) in kept]

    def _tell(self) -> None:
        dropped, self._dropped = self._dropped, []
        for each in dropped:
            try:
                each.work.rolled_back()
            except Exception:
                logger.exception("work after a rollback failed to start; the transaction is rolled back")


def watch(wrapper: Wrapper) -> Watch:
    """The watch on this connection. All clients share it."""
    found: Watch | None = wrapper.__dict__.get(_ATTRIBUTE)
    if found is None:
        found = Watch(wrapper)
        setattr(wrapper, _ATTRIBUTE, found)
    return found
