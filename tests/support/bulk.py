"""Bulk operations without a worker: their pages, one by one."""

from __future__ import annotations

from typing import Any

from tests.support.worlds import WORKER

from queuert.client.client import Client
from queuert.features.bulk import own
from queuert.features.bulk.own import Step


async def page(client: Client[Any]) -> Step:
    """Do the next page that is due."""
    async with client.transaction() as tx:
        return await step_in(client, tx)


async def step_in(client: Client[Any], tx: Any) -> Step:
    return await client._run((own.step(client._engine, tx.hooks, WORKER), tx.connection))


async def pages(client: Client[Any]) -> int:
    """Do all pages that are due. Returns their number."""
    number = 0
    while (await page(client)).chain_id is not None:
        number += 1
    return number
