"""Making the adapters. The nats package is imported when they are made, not before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from queuert.adapters.nats.names import Names, check_bucket, check_url

if TYPE_CHECKING:
    from queuert.adapters.nats.notify import NatsNotify
    from queuert.adapters.nats.notify_sync import SyncNatsNotify

DEFAULT_PREFIX = "queuert"


def nats_notify(source: str | Any, *, prefix: str = DEFAULT_PREFIX, bucket: str | None = None) -> NatsNotify:
    """For an async client. `source` is a URL, or a connection of yours (`await nats.connect(…)`), which stays open when
    we close, and must belong to the event loop that the client is used in.

    Subjects and keys begin with `prefix`: installations that share a server need different ones. `bucket` names a
    JetStream key-value bucket for wake hints; one that does not exist is made. Without it there are no wake hints.
    """
    from queuert.adapters.nats.connection import Connection
    from queuert.adapters.nats.notify import NatsNotify

    if isinstance(source, str):
        check_url(source)
    return NatsNotify(Connection(source), Names(prefix), check_bucket(bucket))


def sync_nats_notify(url: str, *, prefix: str = DEFAULT_PREFIX, bucket: str | None = None) -> SyncNatsNotify:
    """For a sync client. nats-py knows event loops only: one in a thread serves all sync clients of the process."""
    from queuert.adapters.nats.notify_sync import SyncNatsNotify

    check_url(url)
    return SyncNatsNotify(url, Names(prefix), check_bucket(bucket))
