"""Notifications through PostgreSQL's LISTEN and NOTIFY, for an async client.

NOTIFY is sent after the commit, on a connection of the provider's: in the user's transaction it would make all
commits in the database wait for each other. Wake hints are not kept; SKIP LOCKED sorts out the crowd.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.finishing import finish
from queuert.adapters.postgres.notify_listener import Listener, OpenLink
from queuert.adapters.postgres.notify_messages import HEARTBEAT, PUBLISH, Channels, Subscriptions, Topic, pack
from queuert.errors import ClientClosed
from queuert.ports.notify import Callback, Dispose, NotifyAdapter
from queuert.ports.provider import AsyncProvider


class PostgresNotify:
    """Made by `psycopg_notify` and `asyncpg_notify`.

    It publishes through the provider, and listens on one connection of its own. `owned`: the provider is closed, too.
    """

    def __init__(
        self,
        provider: AsyncProvider[Any],
        open_link: OpenLink,
        channels: Channels,
        *,
        owned: bool = False,
        heartbeat: float = HEARTBEAT,
    ) -> None:
        self._provider = provider
        self._owned = owned
        self._channels = channels
        self._subscriptions = Subscriptions(channels)
        self._listener = Listener(open_link, self._subscriptions, heartbeat)
        self._closed = False

    async def provide_wake_hints(self, counts: Mapping[str, int]) -> None:  # noqa: ARG002
        self._check_open()

    async def consume_wake_hint(self, type_name: str) -> bool:  # noqa: ARG002
        self._check_open()
        return True

    async def job_scheduled(self, types: Sequence[str]) -> None:
        await self._publish("job_scheduled", types)

    async def chain_completed(self, chain_ids: Sequence[str]) -> None:
        await self._publish("chain_completed", chain_ids)

    async def ownership_lost(self, job_ids: Sequence[str]) -> None:
        await self._publish("ownership_lost", job_ids)

    async def listen_job_scheduled(self, callback: Callback) -> Dispose:
        return await self._listen("job_scheduled", callback)

    async def listen_chain_completed(self, callback: Callback) -> Dispose:
        return await self._listen("chain_completed", callback)

    async def listen_ownership_lost(self, callback: Callback) -> Dispose:
        return await self._listen("ownership_lost", callback)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._subscriptions.clear()
            self._listener.stop()
        await finish(self._release())

    async def _release(self) -> None:
        await self._listener.stopped()
        if self._owned:
            await self._provider.close()

    async def _publish(self, topic: Topic, values: Sequence[str]) -> None:
        self._check_open()
        if values:
            statement = PgStatement(PUBLISH, (self._channels.names[topic], pack(values)))
            await self._provider.execute(None, statement)

    async def _listen(self, topic: Topic, callback: Callback) -> Dispose:
        self._check_open()
        subscription = self._subscriptions.add(topic, callback)
        try:
            await self._listener.active()
            self._check_open()
        except BaseException:
            self._subscriptions.remove(subscription)
            self._listener.stop_if_unused()
            raise

        async def dispose() -> None:
            self._subscriptions.remove(subscription)
            self._listener.stop_if_unused()
            await self._listener.stopped()

        return dispose

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("notify adapter")


if TYPE_CHECKING:
    _: type[NotifyAdapter] = PostgresNotify
