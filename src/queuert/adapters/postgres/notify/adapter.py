"""Notifications through PostgreSQL's LISTEN and NOTIFY, for an async client.

NOTIFY is sent after the commit, on a connection of the provider's: in the user's transaction it would make all
commits in the database wait for each other. Wake hints are not kept; SKIP LOCKED sorts out the crowd.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from queuert.adapters.broadcast.listener import OpenLink
from queuert.adapters.broadcast.messages import Topic
from queuert.adapters.broadcast.notify import BroadcastNotify
from queuert.adapters.postgres.notify.channels import Channels
from queuert.ports.notify import NotifyAdapter
from queuert.ports.provider import AsyncProvider


class PostgresNotify(BroadcastNotify):
    """Made by `psycopg_notify` and `asyncpg_notify`.

    It publishes through the provider, and listens on one connection of its own. `owned`: the provider is closed, too.
    """

    def __init__(
        self, provider: AsyncProvider[Any], open_link: OpenLink, channels: Channels, *, owned: bool = False
    ) -> None:
        super().__init__(open_link, channels.topics)
        self._provider = provider
        self._owned = owned
        self._channels = channels

    async def _send(self, topic: Topic, values: Sequence[str]) -> None:
        await self._provider.execute(None, self._channels.publish(topic, values))

    async def _release(self) -> None:
        if self._owned:
            await self._provider.close()


if TYPE_CHECKING:
    _: type[NotifyAdapter] = PostgresNotify
