"""A failed job that stops its key: what happens if it is retried with another input, or cancelled."""

from __future__ import annotations

from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import eventually

from queuert import Attempt, Chain, Client, EntryJob, Handlers, JobTypeValidationError, Limit, Worker


def folded(job: Any) -> str:
    return str(job.account).lower()


class Post(EntryJob[None], name="post", limit=Limit(by=folded, concurrency=1, ordered=True)):
    account: str
    number: int


class Posts:
    """A worker's handler that fails for the number 0, and the jobs that it has done."""

    def __init__(self) -> None:
        self.done: list[tuple[str, int]] = []
        self.handlers = Handlers[Any]()
        self.handlers.handles(Post, max_attempts=1)(self.post)

    async def post(self, attempt: Attempt[Post]) -> None:
        if not attempt.job.number:
            raise ValueError("no such account")
        self.done.append((attempt.job.account, attempt.job.number))


async def stopped(client: Client[Any], posts: Posts) -> list[Chain[Any]]:
    """Two chains of one key. The first one has failed."""
    async with client.transaction() as tx:
        chains = [await client.start(tx, Post(account="X", number=number)) for number in (0, 1)]
    async with Worker(client, posts.handlers, concurrency=10):
        await eventually(lambda: has_failed(client, chains[0]))
    return chains


async def has_failed(client: Client[Any], chain: Chain[Any]) -> bool:
    found = await client.get_chain(chain)
    return found is not None and found.status == "failed"


async def test_a_job_that_is_retried_with_another_key(setting: Setting) -> None:
    """The key that it stopped goes on, and it runs with the new key."""
    posts = Posts()
    async with setting.connect([Post]) as client:
        first, second = await stopped(client, posts)
        async with client.transaction() as tx:
            (again,) = await client.retry(tx, first, input=Post(account="Y", number=2))
        assert again.status == "pending"
        assert [(row.key, row.waiting, row.holder) for row in (await client.list_limits()).items if row.key] == [
            ("x", 1, None),
            ("y", 1, None),
        ]
        async with Worker(client, posts.handlers, concurrency=10, poll_interval=min(setting.poll_interval, 5.0)):
            await client.wait(first)
            await client.wait(second)
    assert sorted(posts.done) == [("X", 1), ("Y", 2)]


async def test_a_failed_chain_that_stops_its_key_is_cancelled(setting: Setting) -> None:
    """The worker goes on with the key. Once more is nothing."""
    posts = Posts()
    async with setting.connect([Post]) as client:
        first, second = await stopped(client, posts)
        async with Worker(client, posts.handlers, concurrency=10, poll_interval=min(setting.poll_interval, 5.0)):
            async with client.transaction() as tx:
                (cancelled,) = await client.cancel(tx, first, by="ann", reason="INC-42")
            assert (cancelled.id, cancelled.status) == (first.id, "cancelled")
            assert cancelled.last_error is not None
            await client.wait(second)
            async with client.transaction() as tx:
                assert await client.cancel(tx, first) == []
            assert [record.action for record in (await client.list_audit(first)).items] == ["cancel"]
            async with client.transaction() as tx:
                await client.retry(tx, first, input=Post(account="X", number=3))
            await client.wait(first)
    assert posts.done == [("X", 1), ("X", 3)]


async def test_an_input_without_a_valid_key_is_refused(setting: Setting) -> None:
    posts = Posts()
    async with setting.connect([Post]) as client:
        first, _ = await stopped(client, posts)
        with pytest.raises(JobTypeValidationError, match="the key of a limit"):
            async with client.transaction() as tx:
                await client.retry(tx, first, input=Post(account="", number=2))
        assert await has_failed(client, first)
