"""Notifications through PostgreSQL's LISTEN and NOTIFY, for a sync client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import Connection

from queuert.adapters.broadcast.bell import Bell
from queuert.adapters.broadcast.listener import OnMessage
from queuert.adapters.broadcast.messages import Topic
from queuert.adapters.broadcast.notify_sync import SyncBroadcastNotify
from queuert.adapters.broadcast.pauses import CONNECT_TIMEOUT
from queuert.adapters.postgres.drivers.psycopg_common import has_answered, query, read_messages, reraise, send_ping
from queuert.adapters.postgres.notify.channels import APPLICATION, Channels
from queuert.ports.notify import SyncNotifyAdapter
from queuert.ports.provider import SyncProvider


class SyncPostgresNotify(SyncBroadcastNotify):
    """Made by `sync_psycopg_notify`.

    It publishes through the provider, and listens on one connection of its own. `owned`: the provider is closed, too.
    """

    def __init__(
        self, provider: SyncProvider[Any], listen_url: str, channels: Channels, *, owned: bool = False
    ) -> None:
        statement = channels.listen(["chain_completed"])
        super().__init__(lambda on_message: _open_link(listen_url, statement, on_message), channels.topics)
        self._provider = provider
        self._owned = owned
        self._channels = channels

    def _send(self, topic: Topic, values: Sequence[str]) -> None:
        self._provider.execute(None, self._channels.publish(topic, values))

    def _release(self) -> None:
        if self._owned:
            self._provider.close()


def _open_link(url: str, statement: str, on_message: OnMessage) -> SyncPsycopgLink:
    options: dict[str, Any] = {} if "connect_timeout=" in url else {"connect_timeout": int(CONNECT_TIMEOUT)}
    try:
        connection: Connection[Any] = Connection.connect(
            url, autocommit=True, client_encoding="utf8", fallback_application_name=APPLICATION, **options
        )
        # For what comes while psycopg reads the socket.
        connection.add_notify_handler(lambda message: on_message(message.channel, message.payload))
        try:
            connection.execute(query(statement))
        except BaseException:
            connection.close()
            raise
    except psycopg.Error as error:
        raise reraise(error, inside=False) from error
    return SyncPsycopgLink(connection, on_message)


class SyncPsycopgLink:
    def __init__(self, connection: Connection[Any], on_message: OnMessage) -> None:
        self._connection = connection
        self._on_message = on_message
        self._asked = False
        self._bell = Bell()

    def receive(self, timeout: float) -> bool:
        in_time = self._bell.wait(self._connection.pgconn.socket, timeout)
        for message in read_messages(self._connection):
            self._on_message(message.relname.decode(), message.extra)
        if self._asked:
            self._asked = not has_answered(self._connection)
        return in_time

    def ping(self) -> None:
        send_ping(self._connection)
        self._asked = True

    def interrupt(self) -> None:
        self._bell.ring()

    def close(self) -> None:
        self._connection.close()
        self._bell.close()


if TYPE_CHECKING:
    _: type[SyncNotifyAdapter] = SyncPostgresNotify
