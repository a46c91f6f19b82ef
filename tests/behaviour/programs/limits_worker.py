"""A worker whose jobs have limits, in bad weather, until it is killed: limits_worker URL"""

from __future__ import annotations

import asyncio
import random
import sys
from typing import Any

from tests.behaviour.programs.bad_weather import complete_with, work

from queuert import Attempt, EntryJob, Handlers, Job, Limit, Rate, RateLimited

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
    job = attempt.job
    await complete_with(attempt, f"INSERT INTO posted (account, number) VALUES ({job.account}, {job.number})")


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], JOBS, handlers, concurrency=10))
