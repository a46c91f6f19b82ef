"""A worker whose jobs have limits, in bad weather, until it is killed: limits_worker URL"""

from __future__ import annotations

import asyncio
import random
import sys
from inspect import isawaitable
from typing import Any

import queuert
from queuert import Attempt, Backoff, EntryJob, Handlers, Job, Limit, Rate, RateLimited, Worker

AT_ONCE = 2
PER_SECOND = 20


class Sync(EntryJob[None], name="sync", limit=Limit(by="tenant", concurrency=AT_ONCE, weight="weight")):
    tenant: int
    weight: float = 1.0


class Call(EntryJob[None], name="call", limit=Limit(by="partner", concurrency=5, rate=Rate(PER_SECOND, per=1))):
    partner: int


class Post(EntryJob[None], name="post", limit=Limit(by="account", concurrency=1, ordered=True)):
    account: int
    number: int


JOBS: list[type[Job[Any, Any]]] = [Sync, Call, Post]
handlers = Handlers[Any]()


@handlers.handles(Sync, max_attempts=10_000)
async def sync(attempt: Attempt[Sync, Any]) -> None:
    await asyncio.sleep(random.random() * 0.05)
    if random.random() < 0.1:
        raise ValueError("at random")


@handlers.handles(Call, max_attempts=10_000)
async def call(attempt: Attempt[Call, Any]) -> None:
    if random.random() < 0.02:
        raise RateLimited(0.2)
    await asyncio.sleep(random.random() * 0.02)


@handlers.handles(Post, max_attempts=10_000)
async def post(attempt: Attempt[Post, Any]) -> None:
    if random.random() < 0.1:
        raise ValueError("at random")
    async with attempt.complete() as tx:
        job = attempt.job
        written = tx.connection.execute(f"INSERT INTO posted (account, number) VALUES ({job.account}, {job.number})")
        if isawaitable(written):  # sqlite3 has nothing to wait for
            await written


async def main(url: str) -> None:
    client = queuert.connect(url, jobs=JOBS)
    worker = Worker(
        client,
        handlers,
        concurrency=10,
        lease=4.0,
        poll_interval=0.5,
        backoff=Backoff(initial=0.05, maximum=0.5),
        recovery_backoff=Backoff(initial=0.1, maximum=1.0),
    )
    async with client:
        await worker.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
