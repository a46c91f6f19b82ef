"""A pool of our own, written once for all drivers.

The caller that needs a connection opens it, if none is idle. So it gets the error if that fails,
and nothing connects in the background. There are never more connections than `size`, idle ones
included, and a caller that waits costs nothing but its place in the queue.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from time import monotonic
from typing import Generic, TypeVar

from queuert.adapters.postgres.drivers.errors import unavailable
from queuert.adapters.postgres.drivers.shares import OF_OWN_POOL, Share, Shares
from queuert.adapters.postgres.drivers.sources import PoolOptions, Source
from queuert.adapters.waiting import Waiting
from queuert.errors import ClientClosed
from queuert.ports.provider import TimeLimit

C = TypeVar("C")

LONGEST_LIFE = 3600.0
"""Seconds after which a connection is replaced. Backends grow, and addresses change."""
LONGEST_IDLE = 600.0
"""Seconds after which a connection that is not used is closed."""


class Opener(ABC, Generic[C]):
    """Opens and closes the connections of a driver."""

    waiting: Waiting
    database: str | None = None
    """See `Source`."""

    @abstractmethod
    async def connect(self, seconds: float, statement_timeout: float | None) -> C:
        """Open a connection within this time. `statement_timeout` (seconds) is a setting that it
        begins with: RESET ALL does not remove it. Raises `StorageError`."""

    @abstractmethod
    def is_usable(self, connection: C) -> bool:
        """Whether an idle connection can be used, as far as the client can tell without I/O."""

    @abstractmethod
    async def clean(self, connection: C) -> bool:
        """Make it ready for its next user. False: it cannot be used again. Takes limited time."""

    def clean_now(self, connection: C) -> bool:  # noqa: ARG002
        """`clean`, if that takes no time. False: it does, or it cannot be used again."""
        return False

    @abstractmethod
    async def close(self, connection: C) -> None:
        """Takes limited time, and raises nothing."""


class _Facts:
    """What the pool knows of a connection."""

    __slots__ = ("idle_since", "opened_at", "share")

    def __init__(self, share: Share) -> None:
        self.share = share
        self.opened_at = self.idle_since = monotonic()


class Pool(Source[C]):
    def __init__(self, opener: Opener[C], options: PoolOptions, close_wait: float = 0.0) -> None:
        """`close_wait`: seconds that `close` waits for connections that are in use."""
        self._shares = Shares(opener.waiting, options.max_size, OF_OWN_POOL)
        self.shares = self._shares
        self._opener = opener
        self._timeout = options.timeout
        self._close_wait = close_wait
        self._statement_timeout: float | None = None
        self._idle: dict[C, _Facts] = {}
        """The connection that was used last is the last one."""
        self._used: dict[C, _Facts] = {}
        self._trusted_since = 0.0
        self._closed = False
        self._emptied: Future[None] = Future()

    @property
    def database(self) -> str | None:  # type: ignore[override]
        return self._opener.database

    @property
    def in_use(self) -> list[C]:
        return list(self._used)

    def take_now(self, limit: TimeLimit | None) -> C | None:
        share = self._shares.share_for(limit)
        if not share.permits.take_now():
            return None
        found = self._pop_idle(share)
        if found is not None:
            connection, facts = found
            if self._opener.is_usable(connection) and facts.idle_since >= self._trusted_since:
                self._used[connection] = facts
                return connection
            self._idle[connection] = facts  # `take` closes it
        self._shares.leave(share)
        return None

    async def take(self, limit: TimeLimit | None) -> C:
        began = monotonic()
        share = self._shares.share_for(limit)
        if not await self._shares.enter(share, self._timeout):
            raise unavailable(f"all {share.size} connections were in use for {self._timeout:g} s")
        try:
            while (found := self._pop_idle(share)) is not None:
                connection, facts = found
                if self._opener.is_usable(connection) and facts.idle_since >= self._trusted_since:
                    self._used[connection] = facts
                    return connection
                await self._opener.close(connection)
            left = max(1.0, self._timeout - (monotonic() - began))
            timeout = self._statement_timeout if share.upkeep else None
            connection = await self._opener.connect(left if limit is None else limit.seconds, timeout)
        except BaseException:
            self._shares.leave(share)
            raise
        self._used[connection] = _Facts(share)
        return connection

    def give_back_now(self, connection: C) -> bool:
        facts, now = self._used.get(connection), monotonic()
        if facts is None or self._is_over(facts, now) or self._has_old(now):
            return False
        if not self._opener.clean_now(connection):
            return False
        facts.idle_since = now
        del self._used[connection]
        self._idle[connection] = facts
        self._shares.leave(facts.share)
        return True

    async def give_back(self, connection: C) -> None:
        """Takes limited time, and raises nothing."""
        facts = self._used[connection]
        now = monotonic()
        try:
            keep = await self._opener.clean(connection)
            if keep and not self._is_over(facts, now):
                facts.idle_since = now
                del self._used[connection]
                self._idle[connection] = facts
                await self._close_old(now)
            else:
                await self._opener.close(connection)
        finally:
            self._used.pop(connection, None)
            self._shares.leave(facts.share)
            if self._closed and not self._used and not self._emptied.done():
                self._emptied.set_result(None)

    def distrust_idle(self) -> None:
        """Those that are idle now are not used again."""
        self._trusted_since = monotonic()

    async def reserve(self, statement_timeout: float) -> None:
        """Set connections aside for a worker, with the largest timeout of all workers."""
        if not await self._shares.reserve(self._timeout, self._make_room):
            raise unavailable(f"all {self._shares.size} connections were in use for {self._timeout:g} s")
        if self._statement_timeout is None or statement_timeout > self._statement_timeout:
            self._statement_timeout = statement_timeout
            try:
                await self._close_idle(lambda facts: facts.share.upkeep)
            except BaseException:
                await self.unreserve()
                raise

    async def unreserve(self) -> None:
        number = self._shares.retire()
        try:
            await self._close_idle(lambda facts: facts.share.retired)
        finally:
            self._shares.restore(number)

    async def close(self) -> None:
        """Connections that are in use are closed when they are given back."""
        self._closed = True
        self._shares.close(ClientClosed("PostgreSQL provider"))
        await self._close_idle(lambda _: True)
        if self._used and self._close_wait:
            with suppress(TimeoutError):
                await self._opener.waiting.result(self._emptied, self._close_wait)

    async def _make_room(self) -> None:
        """The connections that are set aside are within `size`. A caller that is about to connect
        has a permit, but no connection yet: so count permits, not connections."""
        main = self._shares.main
        idle = [connection for connection, facts in list(self._idle.items()) if facts.share is main]
        await self._close_these(idle[: max(0, len(idle) - main.permits.free)])

    def _is_over(self, facts: _Facts, now: float) -> bool:
        return self._closed or facts.share.retired or now - facts.opened_at > LONGEST_LIFE

    def _pop_idle(self, share: Share) -> tuple[C, _Facts] | None:
        for connection in reversed(list(self._idle)):
            facts = self._idle.get(connection)
            if facts is not None and facts.share is share and self._idle.pop(connection, None) is not None:
                return connection, facts
        return None

    async def _close_old(self, now: float) -> None:
        if self._has_old(now):
            await self._close_idle(lambda facts: now - facts.idle_since > LONGEST_IDLE)

    def _has_old(self, now: float) -> bool:
        for facts in list(self._idle.values()):
            return now - facts.idle_since > LONGEST_IDLE  # the first one has been idle for longest
        return False

    async def _close_idle(self, which: Callable[[_Facts], bool]) -> None:
        await self._close_these([connection for connection, facts in list(self._idle.items()) if which(facts)])

    async def _close_these(self, idle: list[C]) -> None:
        """Those of them that are still idle when it is their turn."""
        for connection in idle:
            if self._idle.pop(connection, None) is not None:
                await self._opener.close(connection)
