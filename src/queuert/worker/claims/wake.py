"""Waking the worker: notifications, and the hints that decide which worker queries the database."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Collection

from queuert.base.own_types import is_own
from queuert.ports.notify import MISSED, Dispose, Draw, NotifyAdapter
from queuert.worker.base.next_turn import NextTurn
from queuert.worker.claims.crowd import Crowd

logger = logging.getLogger("queuert.worker")

SUBSCRIBE_SECONDS = 1.0
"""How long the main loop waits for a subscription."""
TAKE_HINT_SECONDS = 1.0
"""How long it waits for a hint."""


class Wake:
    """Collects messages until the main loop is ready for them, and keeps the subscriptions
    alive.
    """

    def __init__(
        self,
        notify: NotifyAdapter,
        types: Collection[str],
        next_turn: NextTurn,
        crowd: Crowd,
        *,
        coalesce: int,
        on_ownership_lost: Callable[[str], None],
        on_pause_changed: Callable[[str], None],
        on_own_work: Callable[[], None],
    ) -> None:
        self._notify = notify
        self._types = frozenset(types)
        self._on_ownership_lost = on_ownership_lost
        self._on_pause_changed = on_pause_changed
        self._on_own_work = on_own_work
        self._coalesce = coalesce
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._scheduled: deque[tuple[str, Draw | None]] = deque()
        self._disposes: list[Dispose] = []
        self._subscribing: asyncio.Task[None] | None = None
        self._is_late = False
        self._warned = False
        self._next_turn = next_turn
        self._event = next_turn.event
        self._crowd = crowd

    async def listen(self) -> None:
        """Subscribe, if not done yet. If the channel does not answer, poll and try again later."""
        if self._disposes:
            return
        if self._subscribing is None:
            self._subscribing = asyncio.create_task(self._subscribe(), name="queuert-subscribe")
        # The worker goes on without a channel that does not answer.
        _, waiting = await asyncio.wait({self._subscribing}, timeout=SUBSCRIBE_SECONDS)
        self._is_late = bool(waiting)

    async def _subscribe(self) -> None:
        disposes: list[Dispose] = []
        try:
            disposes.append(await self._notify.listen("job_scheduled", self._job_scheduled))
            disposes.append(await self._notify.listen("ownership_lost", self._ownership_lost))
            disposes.append(await self._notify.listen("pause_changed", self._pause_changed))
        except Exception:
            await _end(disposes)
            if not self._warned:
                self._warned = True
                logger.warning("cannot listen for notifications: polling until the channel is back", exc_info=True)
        except asyncio.CancelledError:
            await _end(disposes)
            raise
        else:
            self._disposes = disposes
            # Claims may have been lost before we listened, without a message.
            self._on_ownership_lost(MISSED)
            if self._is_late:  # the last claim came before this began to listen
                self._add(MISSED)
            if self._warned:
                self._warned = False
                logger.info("listening for notifications again")
        finally:
            self._subscribing = None

    async def dispose(self) -> None:
        if self._subscribing is not None:
            self._subscribing.cancel()
            await asyncio.wait({self._subscribing})
        disposes, self._disposes = self._disposes, []
        await _end(disposes)

    async def should_claim(self, able: bool) -> bool:
        """Read the messages that came. Returns whether this worker should claim now.

        A worker takes a hint only if it is able to claim now; otherwise it claims anyway once it is
        able. One hint is enough: the claim is for all types, and other workers need the hints that
        are left for the jobs that this one cannot take.
        """
        types = dict.fromkeys(self._scheduled.popleft() for _ in range(min(self._coalesce, len(self._scheduled))))
        if self._scheduled:
            self._event.set()
        wanted = False
        for type_name, draw in types:
            if wanted or not able or type_name == MISSED:
                wanted = True
            elif wait := self._crowd.wait_for(type_name, draw):
                self._next_turn.claim_in(wait)
            else:
                wanted = await self._take_hint(type_name)
        return wanted

    async def _take_hint(self, type_name: str) -> bool:
        try:
            async with asyncio.timeout(TAKE_HINT_SECONDS):
                return await self._notify.consume_wake_hint(type_name)
        except Exception:
            logger.warning("asking for a wake hint failed, claiming without one", exc_info=True)
            return True

    # These may be called from any thread.

    def _job_scheduled(self, type_name: str) -> None:
        if type_name in self._types or type_name == MISSED:
            if threading.get_ident() == self._thread:
                self._add(type_name)  # in the same turn of the loop: a job waits for this
            else:
                self._call(self._add, type_name)
        elif is_own(type_name):
            self._call(lambda _: self._on_own_work(), type_name)

    def _ownership_lost(self, job_id: str) -> None:
        self._call(self._on_ownership_lost, job_id)

    def _pause_changed(self, target: str) -> None:
        self._call(self._on_pause_changed, target)

    def _call(self, function: Callable[[str], None], argument: str) -> None:
        try:
            self._loop.call_soon_threadsafe(function, argument)
        except RuntimeError:
            return  # the loop is closed, and the worker with it

    def _add(self, type_name: str) -> None:
        self._scheduled.append((type_name, getattr(type_name, "draw", None)))
        self._event.set()


async def _end(disposes: list[Dispose]) -> None:
    for dispose in disposes:
        try:
            await dispose()
        except Exception:
            logger.warning("ending a subscription failed", exc_info=True)
