"""Wake hints in a key-value bucket of JetStream: a number for each type, changed by
compare-and-set.

A change that conflicts with another is tried again. Each time, another process has succeeded. A
value that is not a number counts as no budget.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from nats.errors import NoRespondersError
from nats.js.api import StorageType
from nats.js.errors import (
    BadRequestError,
    BucketNotFoundError,
    KeyNotFoundError,
    KeyWrongLastSequenceError,
    NoStreamResponseError,
)

from queuert.adapters.nats.connection import Connection, ConnectionLost, unless_lost
from queuert.adapters.nats.names import hint_key

T = TypeVar("T")

HINT_SECONDS = 60
"""How long a budget is known after its last change, in a bucket that we make. Without one, every
worker wakes."""
TIMEOUT = 5.0


class Hints:
    def __init__(self, connection: Connection, prefix: str, bucket: str) -> None:
        self._connection = connection
        self._prefix = prefix
        self._bucket = bucket
        self._opened: tuple[Any, Any] | None = None
        """The client, and the bucket that it has opened."""

    async def provide(self, counts: Mapping[str, int]) -> None:
        async def add_all(bucket: Any) -> None:
            await asyncio.gather(*(self._add(bucket, name, count) for name, count in counts.items()))

        await self._with_bucket(add_all)

    async def consume(self, type_name: str) -> bool:
        return await self._with_bucket(lambda bucket: self._take(bucket, type_name))

    async def _add(self, bucket: Any, type_name: str, count: int) -> None:
        key = hint_key(self._prefix, type_name)
        while True:
            left, revision = await _read(bucket, key)
            if await _write(bucket, key, (left or 0) + count, revision):
                return

    async def _take(self, bucket: Any, type_name: str) -> bool:
        """A budget that is used up is kept, so that one job does not make every idle worker query
        the database.
        """
        key = hint_key(self._prefix, type_name)
        while True:
            left, revision = await _read(bucket, key)
            if left is None or left <= 0:
                return left is None
            if await _write(bucket, key, left - 1, revision):
                return True

    async def _with_bucket(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """A second try may repeat the change: then one worker too many wakes."""
        try:
            return await self._try(work)
        except ConnectionLost:
            return await self._try(work)

    async def _try(self, work: Callable[[Any], Awaitable[T]]) -> T:
        client = await self._connection.connected_soon()

        async def attempt() -> T:
            try:
                return await work(await self._open(client))
            except (NoStreamResponseError, NoRespondersError):
                self._opened = None  # a restarted server has lost what it kept in memory
                return await work(await self._open(client))

        return await unless_lost(client, attempt())

    async def _open(self, client: Any) -> Any:
        if self._opened is None or self._opened[0] is not client:
            self._opened = (client, await self._find_or_make(client.jetstream(timeout=TIMEOUT)))
        return self._opened[1]

    async def _find_or_make(self, jetstream: Any) -> Any:
        try:
            return await jetstream.key_value(self._bucket)
        except BucketNotFoundError:
            pass
        try:
            return await jetstream.create_key_value(
                bucket=self._bucket,
                description="wake hints of queuert",
                ttl=HINT_SECONDS,
                history=1,
                storage=StorageType.MEMORY,
            )
        except BadRequestError:  # another process has just made it, with other settings
            return await jetstream.key_value(self._bucket)


async def _read(bucket: Any, key: str) -> tuple[int | None, int | None]:
    """The number and its revision; None and None if there is none."""
    try:
        entry = await bucket.get(key)
    except KeyNotFoundError:
        return None, None
    try:
        return int(entry.value), entry.revision
    except (TypeError, ValueError):
        return None, entry.revision


async def _write(bucket: Any, key: str, number: int, revision: int | None) -> bool:
    """Write, unless the revision has changed since it was read: True if written."""
    value = str(number).encode()
    try:
        if revision is None:
            await bucket.create(key, value)
        else:
            await bucket.update(key, value, last=revision)
    except KeyWrongLastSequenceError:
        return False
    return True
