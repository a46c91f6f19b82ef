"""Notifications through NATS: subjects, and wake hints in a JetStream bucket.

The nats package is imported when it is used.
"""

from __future__ import annotations

from typing import Any

from queuert.adapters.broadcast import BroadcastNotify
from queuert.adapters.nats.names import check_bucket, check_prefix, check_url

__all__ = ["nats_notify"]


def nats_notify(source: str | Any, *, prefix: str = "queuert", bucket: str | None = None) -> BroadcastNotify:
    """Notifications through NATS, and wake hints in a JetStream bucket.

    Args:
        source: A URL, or a connection (`await nats.connect(…)`), which is not closed. It must
            belong to the event loop that uses the adapter.
        prefix: The prefix of subjects and keys (default: "queuert"). Databases that share a server
            need different prefixes.
        bucket: The JetStream key-value bucket for wake hints. It is created if it does not exist
            (default: no wake hints).
    """
    from queuert.adapters.nats.provider import HintingNatsProvider, NatsProvider

    if isinstance(source, str):
        check_url(source)
    check_prefix(prefix)
    check_bucket(bucket)

    def make() -> NatsProvider:
        return NatsProvider(source) if bucket is None else HintingNatsProvider(source, prefix, bucket)

    return BroadcastNotify(make if isinstance(source, str) else make(), prefix=prefix)
