"""NOTIFY over Django's own connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from queuert.adapters.broadcast import BroadcastNotify
from queuert.adapters.broadcast.draws import Draws
from queuert.adapters.broadcast.messages import pack
from queuert.adapters.broadcast.provider import MAX_PAYLOAD
from queuert.adapters.postgres.notify import channels
from queuert.ports.notify import Topic
from queuert.ports.sync_notify import SyncNotify


class DjangoNotify(SyncNotify):
    """Sends notifications on the connection that has just committed, in its thread.

    At that moment the connection is free, and the server is known to be reachable. Only listening
    needs the event loop thread.
    """

    def __init__(self, provider: Any, listening: BroadcastNotify) -> None:
        super().__init__(listening)
        self.immediate = True  # in the background, it would need a connection more
        self._provider = provider
        self._channels = listening.channels
        self._draws = Draws()

    def publish(self, topic: Topic, values: Sequence[str]) -> None:
        self._check_open()
        if values:
            draw = self._draws.take(values) if topic == "job_scheduled" else None
            self._provider.execute(None, channels.publish(self._channels[topic], pack(values, MAX_PAYLOAD, draw)))

    def provide_wake_hints(self, counts: Mapping[str, int]) -> None:
        self._check_open()
        self._draws.add(counts)
