"""What a worker process answers when the supervisor asks whether there is anything left to do."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from queuert.base.times import distance_of
from queuert.client.client import Client
from queuert.engine.operations.reading import MAX_PAGE
from queuert.errors import ChainError, InvalidArgument, StorageError
from queuert.jobs.filter import Filter
from queuert.operate.counts import BOUND, Count
from queuert.operate.ids import find_chains
from queuert.worker.worker import Worker

TRY_AGAIN = 1.0
"""Seconds between two tries while the database is unavailable."""
COUNTED = 10 * MAX_PAGE
"""Pending jobs that are looked at."""

Left = dict[str, Any]
"""`text` for people, and `waits`: whether anything is left that was begun or could have run."""


async def left(worker: Worker) -> Left:
    """The jobs of this worker's types that have not ended."""
    client, types = worker.client, worker.job_types
    stats = [each for each in await client.stats(limit=BOUND + 1) if each.job_type in types]
    blocked, running = (
        Count.up_to(BOUND, sum(getattr(each, name) for each in stats)) for name in ("blocked", "running")
    )
    kinds, retried_at, whole = await _pending(client, types)
    number = {kind: str(Count(kinds[kind], at_least=not whole and bool(kinds[kind]))) for kind in kinds}
    first = "" if retried_at is None else f", the first {distance_of((retried_at - datetime.now(UTC)).total_seconds())}"
    texts = [
        f"{number['retried']} to be tried again{first}" if kinds["retried"] else "",
        f"{blocked} blocked" if blocked.number else "",
        f"{running} running elsewhere" if running.number else "",
        f"{number['ready']} ready, but paused or limited" if kinds["ready"] else "",
        f"{number['later']} scheduled for later" if kinds["later"] else "",
    ]
    waits = bool(blocked.number or running.number or kinds["retried"] or kinds["ready"])
    return {"text": f"left: {'; '.join(filter(None, texts))}" if any(texts) else "nothing is left", "waits": waits}


async def _pending(client: Client[Any], types: Sequence[str]) -> tuple[Counter[str], datetime | None, bool]:
    """Pending jobs by kind, when the first one is tried again, and whether these were all."""
    kinds, first, seen = Counter[str](), None, 0
    cursor: str | None = None
    while seen < COUNTED:
        page = await client.list_jobs(types, where=Filter(status="pending"), limit=MAX_PAGE, cursor=cursor)
        now = datetime.now(UTC)
        for job in page.items:
            if job.scheduled_at <= now:
                kinds["ready"] += 1
            elif job.attempt_number:
                kinds["retried"] += 1
                first = min(first or job.scheduled_at, job.scheduled_at)
            else:
                kinds["later"] += 1
        seen, cursor = seen + len(page.items), page.next_cursor
        if cursor is None:
            return kinds, first, True
    return kinds, first, False


async def ended(client: Client[Any], given: Sequence[str]) -> Left:
    """Wait until these chains have ended. `error`: one of them cannot be waited for."""
    while True:
        try:
            ids = [chain.id for chain in await find_chains(client, given)]
            await asyncio.gather(*(_end_of(client, each) for each in ids))
            chains = dict(zip(ids, [await client.get_chain(each) for each in ids], strict=True))
            break
        except StorageError:
            await asyncio.sleep(TRY_AGAIN)
        except (InvalidArgument, ChainError) as error:
            return {"error": str(error)}
    others = {each: "deleted" if chain is None else chain.status for each, chain in chains.items()}
    others = {each: status for each, status in others.items() if status != "completed"}
    texts = [f"completed: {len(ids) - len(others)} of {len(ids)} chains"]
    texts += [f"{each} is {status}" for each, status in others.items()]
    return {"text": "; ".join(texts), "waits": bool(others)}


async def _end_of(client: Client[Any], chain_id: str) -> None:
    with suppress(ChainError):  # it has ended without an output
        await client.wait(chain_id)
