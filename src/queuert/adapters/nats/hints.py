"""Wake hints in a key-value bucket of JetStream: a number for each type, changed by
compare-and-set.

A change that conflicts with another is tried again. Each time, another process has succeeded. A
value that is not a number counts as no budget.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
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

from queuert.adapters.broadcast.provider import HINT_SECONDS
from queuert.adapters.nats.connection import Connection, ConnectionLost, unless_lost
from queuert.adapters.nats.names import hint_key

T = TypeVar("T")

TIMEOUT = 5.0


class Hints:
    def __init__(self, connection: Connection, prefix: str, bucket: str) -> None:
        self._connection = connection
        self._prefix = prefix
        self._bucket = bucket
        self._opened: tuple[Any, Any] | None = None
        """The client, and the bucket that it has opened."""

    async def provide(self, counts: Mapping[str, int]) -> None:
        async def add(bucket: Any, type_name: str, count: int) -> None:
            await _change(bucket, hint_key(self._prefix, type_name), lambda left: (left or 0) + count)

        async def add_all(bucket: Any) -> None:
            await asyncio.gather(*(add(bucket, name, count) for name, count in counts.items()))

        await self._with_bucket(add_all)

    async def consume(self, type_name: str) -> bool:
        """A budget that is used up is kept, so that one job does not make every idle worker query
        the database.
        """
        key = hint_key(self._prefix, type_name)
        left = await self._with_bucket(
            lambda bucket: _change(bucket, key, lambda left: left - 1 if left is not None and left > 0 else None)
        )
        return left is None or left > 0

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
                ttl=HINT_SECONDS,  # since the last change
                history=1,
                storage=StorageType.MEMORY,
            )
        except BadRequestError:  # another process has just made it, with other settings
            return await jetstream.key_value(self._bucket)


async def _change(bucket: Any, key: str, change: Callable[[int | None], int | None]) -> int | None:
    """Change a number, unless `change` returns None. Returns the number before, None if there was
    none.
    """
    while True:
        revision: int | None = None
        left: int | None = None
        with suppress(KeyNotFoundError):
            entry = await bucket.get(key)
            revision = entry.revision
            with suppress(TypeError, ValueError):
                left = int(entry.value)
        number = change(left)
        if number is None:
            return left
        with suppress(KeyWrongLastSequenceError):
            value = str(number).encode()
            await (bucket.create(key, value) if revision is None else bucket.update(key, value, last=revision))
            return left
