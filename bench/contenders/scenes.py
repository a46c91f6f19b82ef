"""Other jobs in the tables, beside the jobs that are drained.

All are stored through the public API.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from bench.contenders.jobs import Order, handlers_for
from bench.contenders.link import Line, Task
from queuert import Chain, Client, EntryJob, Worker

NEXT_WEEK = timedelta(days=7)
MORE_URGENT = 1
BATCH = 1000


class Waiting(EntryJob[None], name="waiting"):
    order: Chain[Order]
    order_id: int
    who: str
    amount: int


def _other(number: int) -> type[EntryJob[None]]:
    class Other(EntryJob[None], name=f"other-{number}"):
        order_id: int
        who: str
        amount: int

    return Other


OTHERS = [_other(number) for number in range(50)]
JOBS: list[type[EntryJob[Any]]] = [Waiting, *OTHERS]


async def build(client: Client[Any], task: Task, scene: str, jobs: int) -> None:
    if scene == "completed":
        await _start(client, jobs, lambda number: Order(**task.payload(number)))
        await Worker(client, handlers_for("drain", Line()), concurrency=100).drain()
    elif scene == "pending":
        await _start(client, jobs, lambda number: Order(**task.payload(number)))
    elif scene == "scheduled":
        await _start(
            client, jobs, lambda number: Order(**task.payload(number)).set(after=NEXT_WEEK, priority=MORE_URGENT)
        )
    elif scene == "blocked":
        await _blocked(client, task, jobs)
    elif scene == "other types":
        await _start(client, jobs, lambda number: OTHERS[number % len(OTHERS)](**task.payload(number)))
    else:
        raise ValueError(f"there is no scene {scene!r}")


async def _start(client: Client[Any], jobs: int, make: Callable[[int], Any]) -> None:
    for start in range(0, jobs, BATCH):
        batch: Sequence[Any] = [make(number) for number in range(start, min(start + BATCH, jobs))]
        async with client.transaction() as tx:
            await client.start_many(tx, batch)


async def _blocked(client: Client[Any], task: Task, jobs: int) -> None:
    """Each thousand of them waits for a chain that is scheduled for next week."""
    for start in range(0, jobs, BATCH):
        async with client.transaction() as tx:
            order = await client.start(tx, Order(**task.payload(start)).set(after=NEXT_WEEK))
            numbers = range(start, min(start + BATCH, jobs))
            await client.start_many(tx, [Waiting(order=order, **task.payload(number)) for number in numbers])
