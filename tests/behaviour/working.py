"""A client with a worker on it, and what the suites of handlers ask of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import PATIENCE, SOON

from queuert import Chain, ChainFailed, Client, EntryJob, Handlers, JobRecord, Worker

E = TypeVar("E", bound=EntryJob[Any, Any])


@asynccontextmanager
async def working(
    setting: Setting, jobs: Iterable[Any], handlers: Handlers[Any] | list[Handlers[Any]], **options: Any
) -> AsyncGenerator[Client[Any]]:
    """A client, and a worker that retries soon. Leaving the block stops the worker."""
    options = {"poll_interval": setting.poll_interval, "backoff": SOON, **options}
    async with setting.connect(jobs) as client, Worker(client, handlers, **options):
        yield client


async def begin(client: Client[Any], job: E, **options: Any) -> Chain[E]:
    """Start a chain in a transaction of its own."""
    async with client.transaction() as tx:
        return await client.start(tx, job, **options)


async def output(client: Client[Any], chain: Chain[Any]) -> Any:
    return await client.wait(chain, timeout=PATIENCE)


async def outcome(client: Client[Any], job: EntryJob[Any, Any], **options: Any) -> Any:
    """Start a chain and wait for its output."""
    return await output(client, await begin(client, job, **options))


async def failure(client: Client[Any], chain: Chain[Any]) -> Mapping[str, Any]:
    """The error that the chain has failed with for good."""
    with pytest.raises(ChainFailed) as caught:
        await output(client, chain)
    assert caught.value.last_error is not None
    return caught.value.last_error


async def failed(client: Client[Any], job: EntryJob[Any, Any], **options: Any) -> Mapping[str, Any]:
    """Start a chain and wait for it to fail."""
    return await failure(client, await begin(client, job, **options))


async def jobs_of(client: Client[Any], chain: Chain[Any]) -> list[JobRecord[Any]]:
    return list((await client.list_chain_jobs(chain, limit=1000)).items)
