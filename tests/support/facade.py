"""The sync client in the clothes of the async one, so that a test is written once.

`awaited(sync_client)` has the methods of `Client`: each does its work inline, in the thread of the event loop, and is
done before anybody else runs. Only `wait` goes to a thread of its own, for it would block the loop that must end it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, cast

from queuert.base.transaction import Transaction
from queuert.client.client import Client
from queuert.client.sync_client import SyncClient, SyncCompletion

_BLOCKS = ("transaction", "after_commit", "savepoint", "take_over")


class _Awaited:
    def __init__(self, client: SyncClient[Any]) -> None:
        self.sync = client

    async def __aenter__(self) -> _Awaited:
        self.sync.__enter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.sync.__exit__(*exc)

    def __getattr__(self, name: str) -> Any:
        value: Any = getattr(self.sync, name)
        if not callable(value) or name == "jobs":
            return value
        if name in _BLOCKS:
            return _block(cast("Any", value))
        if name.startswith("iter_"):
            return _iterate(cast("Any", value))
        return _call(value)

    async def wait(self, *args: Any, **options: Any) -> Any:
        return await asyncio.to_thread(self.sync.wait, *args, **options)


class _AwaitedCompletion:
    def __init__(self, completion: SyncCompletion[Any]) -> None:
        self._completion = completion

    @property
    def job(self) -> Any:
        return self._completion.job

    @property
    def status(self) -> str:
        return self._completion.status

    async def settle(self, result: Any) -> None:
        self._completion.settle(result)


def awaited(client: SyncClient[Any]) -> Client[Any]:
    return cast("Client[Any]", _Awaited(client))


def _call(method: Callable[..., Any]) -> Callable[..., Any]:
    async def call(*args: Any, **options: Any) -> Any:
        return method(*args, **options)

    return call


def _iterate(method: Callable[..., Iterator[Any]]) -> Callable[..., AsyncIterator[Any]]:
    def iterate(*args: Any, **options: Any) -> AsyncIterator[Any]:
        return _each(method(*args, **options))

    return iterate


async def _each(items: Iterator[Any]) -> AsyncIterator[Any]:
    for item in items:
        yield item


def _block(method: Callable[..., AbstractContextManager[Any]]) -> Callable[..., Any]:
    @asynccontextmanager
    async def block(*args: Any, **options: Any) -> AsyncGenerator[Transaction[Any] | _AwaitedCompletion | None]:
        with method(*args, **options) as value:
            yield _AwaitedCompletion(value) if isinstance(value, SyncCompletion) else value

    return block
