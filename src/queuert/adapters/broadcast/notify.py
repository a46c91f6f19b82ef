"""A notify adapter made from a provider."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from queuert.adapters.broadcast.draws import Draws
from queuert.adapters.broadcast.listener import Listener
from queuert.adapters.broadcast.messages import WIRE_NAMES, Subscriptions, pack
from queuert.adapters.broadcast.outbox import Outbox
from queuert.adapters.broadcast.pauses import HEARTBEAT
from queuert.adapters.broadcast.provider import CompleteProvider
from queuert.adapters.finishing import finish
from queuert.errors import ClientClosed, InvalidArgument, NotifyUnavailable
from queuert.ports.notify import TOPICS, Callback, Dispose, NotifyAdapter, NotifyProvider, Topic

_parents_sessions: list[_Session] = []
"""Never released: a forked child must not close or garbage-collect the connections of its
parent."""


class BroadcastNotify:
    """Publishes and listens through a provider: yours, or one of ours.

    Channel names begin with `prefix`, so that installations can share a broker. Give a function
    that makes the provider, instead of the provider itself, if the process may fork after the
    adapter was used: the child then makes a provider of its own.
    """

    heartbeat = HEARTBEAT

    def __init__(
        self,
        provider: NotifyProvider | Callable[[], NotifyProvider],
        *,
        prefix: str = "queuert",
        separator: str = ".",
    ) -> None:
        if not prefix:
            raise InvalidArgument("the prefix of channels must not be empty")
        self._given = provider
        self.channels: dict[Topic, str] = {topic: f"{prefix}{separator}{name}" for topic, name in WIRE_NAMES.items()}
        self._echo = f"{prefix}{separator}echo{separator}{uuid4().hex}"
        self._current: _Session | None = None
        self._closed = False

    async def publish(self, topic: Topic, values: Sequence[str]) -> None:
        session = self._session()
        if values:
            await session.outboxes[topic].send(values)

    async def listen(self, topic: Topic, callback: Callback) -> Dispose:
        session = self._session()
        subscription = session.subscriptions.add(topic, callback)
        try:
            await session.listener.active(topic)
            self._check_open()
        except BaseException:
            session.subscriptions.remove(subscription)
            session.listener.stop_if_unused()
            raise

        async def dispose() -> None:
            if session.is_here():
                session.subscriptions.remove(subscription)
                session.listener.stop_if_unused()
                await session.listener.stopped()

        return dispose

    def provide_wake_hints_now(self, counts: Mapping[str, int]) -> bool:
        draws = self._session().draws
        if draws is None:
            return False
        draws.add(counts)
        return True

    async def provide_wake_hints(self, counts: Mapping[str, int]) -> None:
        if not self.provide_wake_hints_now(counts):
            await self._session().provider.provide_wake_hints(counts)

    async def consume_wake_hint(self, type_name: str) -> bool:
        return await self._session().provider.consume_wake_hint(type_name)

    async def hold(self, key: int) -> int | None:
        return await self._session().provider.hold(key)

    async def release(self, key: int) -> None:
        await self._session().provider.release(key)

    async def close(self) -> None:
        is_first, self._closed = not self._closed, True
        session, self._current = self._current, None
        if session is None and is_first and not callable(self._given):  # it was not used, but may be open
            session = _Session(self._given, self.channels, self._echo, self.heartbeat)
        if session is not None and session.is_here():
            session.subscriptions.clear()
            session.listener.stop()
            await finish(session.end())

    def _session(self) -> _Session:
        self._check_open()
        session = self._current
        if session is None or not session.is_here():
            session = self._current = self._new_session(session)
        return session

    def _new_session(self, before: _Session | None) -> _Session:
        """Make the first session, or one for another event loop.

        The session before it was closed, or belongs to the parent process.
        """
        if before is not None and before.process != os.getpid():
            if not callable(self._given):
                raise NotifyUnavailable(
                    "this process was forked after its notify provider was used: connect again in the "
                    "child process, or give a function that makes the provider"
                )
            _parents_sessions.append(before)
        elif before is not None and not before.loop.is_closed():
            raise NotifyUnavailable("this notify adapter is in use on another event loop: make one for each")
        return _Session(
            self._given() if callable(self._given) else self._given, self.channels, self._echo, self.heartbeat
        )

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("notify adapter")


class _Session:
    """The objects that belong to one event loop."""

    def __init__(self, provider: NotifyProvider, channels: Mapping[Topic, str], echo: str, heartbeat: float) -> None:
        self.process = os.getpid()
        self.loop = asyncio.get_running_loop()
        self.provider = CompleteProvider(provider, echo)
        self.subscriptions = Subscriptions({name: topic for topic, name in channels.items()})
        self.listener = Listener(self.provider, channels, self.subscriptions, heartbeat)
        self.draws = None if self.provider.has_hints else Draws()
        self._channels = channels
        self.outboxes = {topic: Outbox(partial(self._send, topic)) for topic in TOPICS}

    def is_here(self) -> bool:
        return self.loop is asyncio.get_running_loop()

    async def end(self) -> None:
        await self.listener.stopped()
        await self.provider.close()

    async def _send(self, topic: Topic, values: Sequence[str]) -> None:
        draw = None if self.draws is None or topic != "job_scheduled" else self.draws.take(values)
        await self.provider.publish(self._channels[topic], pack(values, self.provider.max_payload, draw))


if TYPE_CHECKING:
    _: type[NotifyAdapter] = BroadcastNotify
