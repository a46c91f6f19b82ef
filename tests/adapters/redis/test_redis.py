"""What is particular to Redis: scripts, keys, and whose client it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import redis
import redis.asyncio
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from tests.behaviour.steps import Step
from tests.support.ears import Ear, ThreadEar
from tests.support.redis import RedisServer, redis_url

from queuert import Attempt, Handlers, InvalidArgument, NotifyUnavailable, Worker, connect
from queuert.adapters.broadcast.provider import HINT_SECONDS
from queuert.adapters.redis import redis_notify
from queuert.adapters.redis.provider import RedisProvider
from queuert.ports.sync_notify import SyncNotify


@pytest.fixture
def prefix() -> str:
    return f"test-{uuid4()}"


@pytest.fixture
def server() -> Iterator[Any]:
    """A client of the shared server, to look behind the adapters' backs."""
    with redis.Redis.from_url(redis_url(), decode_responses=True) as client:
        yield client


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    private = RedisServer()
    yield private
    private.remove()


# Wake hints


async def test_scripts_survive_being_forgotten(prefix: str, server: Any) -> None:
    adapter, sync_adapter = (
        redis_notify(redis_url(), prefix=prefix),
        SyncNotify(redis_notify(redis_url(), prefix=prefix)),
    )
    for _ in range(3):
        server.script_flush()
        await adapter.provide_wake_hints({"a": 1})
        server.script_flush()
        sync_adapter.provide_wake_hints({"a": 1})
        server.script_flush()
        assert [await adapter.consume_wake_hint("a") for _ in range(3)] == [True, True, False]
    sync_adapter.close()
    await adapter.close()


async def test_budgets_end_with_the_server(own_server: RedisServer) -> None:
    """None is known then, so everybody may wake; the next ones are kept as ever."""
    adapter = redis_notify(own_server.url)
    await adapter.provide_wake_hints({"a": 1})
    assert [await adapter.consume_wake_hint("a") for _ in range(2)] == [True, False]
    own_server.stop()
    with pytest.raises(NotifyUnavailable):
        await adapter.consume_wake_hint("a")
    own_server.start()
    assert [await adapter.consume_wake_hint("a") for _ in range(2)] == [True, True]
    await adapter.provide_wake_hints({"a": 1})
    assert [await adapter.consume_wake_hint("a") for _ in range(2)] == [True, False]
    await adapter.close()


async def test_a_budget_is_known_for_a_minute_after_it_was_added_to(prefix: str, server: Any) -> None:
    adapter, key = redis_notify(redis_url(), prefix=prefix), f"{{{prefix}}}:wake-hint:a"
    await adapter.provide_wake_hints({"a": 2, "b": 0})
    assert server.get(key) == "2"
    assert server.keys(f"*{prefix}*") == [key]
    server.expire(key, 5)
    assert await adapter.consume_wake_hint("a")
    assert server.ttl(key) <= 5  # taking one does not make it live longer
    await adapter.provide_wake_hints({"a": 1})
    assert 5 < server.ttl(key) <= HINT_SECONDS
    assert server.get(key) == "2"
    server.delete(key)
    assert await adapter.consume_wake_hint("a")  # nothing is known
    await adapter.close()


async def test_many_types_take_one_round_trip(prefix: str, server: Any) -> None:
    adapter = redis_notify(redis_url(), prefix=prefix)
    await adapter.provide_wake_hints({"first": 1})
    before = server.info("commandstats")["cmdstat_evalsha"]["calls"]
    await adapter.provide_wake_hints({f"type {number}": number for number in range(1, 200)})
    await adapter.provide_wake_hints({})
    assert server.info("commandstats")["cmdstat_evalsha"]["calls"] == before + 1
    assert server.get(f"{{{prefix}}}:wake-hint:type 199") == "199"
    await adapter.close()


# Messages


async def test_many_ids_go_in_few_messages(prefix: str, server: Any) -> None:
    adapter, ear = redis_notify(redis_url(), prefix=prefix), Ear()
    sync_adapter, thread_ear = SyncNotify(redis_notify(redis_url(), prefix=prefix)), ThreadEar()
    await adapter.listen("chain_ended", ear)
    sync_adapter.listen("chain_ended", thread_ear)
    ids = [str(uuid4()) for _ in range(20_000)]
    before = server.info("commandstats")["cmdstat_publish"]["calls"] if "cmdstat_publish" in server.info("all") else 0
    await adapter.publish("chain_ended", ids)
    await ear.until(ids[-1])
    await asyncio.to_thread(thread_ear.until, ids[-1])
    assert ear.heard == thread_ear.heard == ids
    sent = server.info("commandstats")["cmdstat_publish"]["calls"] - before
    assert sent <= 20_000 * 40 // RedisProvider.max_payload + 2
    sync_adapter.close()
    await adapter.close()


async def test_names_of_any_kind_and_length(prefix: str) -> None:
    adapter, ear = redis_notify(redis_url(), prefix=prefix), Ear()
    await adapter.listen("job_scheduled", ear)
    names = ["東京 🚲", 'a"b\\c', "{x}", "x" * 3 * RedisProvider.max_payload, "\u0001\n"]
    await adapter.publish("job_scheduled", names)
    await ear.until(names[-1])
    assert ear.heard == names
    for name in names:
        await adapter.provide_wake_hints({name: 1})
        assert [await adapter.consume_wake_hint(name) for _ in range(2)] == [True, False]
    await adapter.close()


async def test_installations_with_other_prefixes_are_apart(prefix: str) -> None:
    one, two = redis_notify(redis_url(), prefix=prefix), redis_notify(redis_url(), prefix=f"{prefix}-2")
    ears = [Ear(), Ear()]
    for adapter, ear in zip((one, two), ears, strict=True):
        await adapter.listen("job_scheduled", ear)
        await adapter.provide_wake_hints({"a": 1})
    assert await one.consume_wake_hint("a")
    assert await two.consume_wake_hint("a")
    await one.publish("job_scheduled", ["one"])
    await two.publish("job_scheduled", ["two"])
    await ears[0].until("one")
    await ears[1].until("two")
    assert [ear.heard for ear in ears] == [["one"], ["two"]]
    await one.close()
    await two.close()


@pytest.mark.parametrize("bad", ["", "{a}", "a}", "a\0"])
def test_prefixes_that_cannot_be(bad: str) -> None:
    with pytest.raises(InvalidArgument, match="prefix"):
        redis_notify(redis_url(), prefix=bad)


# Whose client it is


async def test_a_client_of_ones_own_is_left_as_it_was(own_server: RedisServer) -> None:
    retry = Retry(NoBackoff(), 3)
    client: Any = redis.asyncio.Redis.from_url(own_server.url, retry=retry)
    for _ in range(2):
        adapter, ear = redis_notify(client), Ear()
        await adapter.listen("chain_ended", ear)
        await adapter.publish("chain_ended", ["a"])
        await ear.until("a")
        await adapter.close()
        assert await client.ping()
        connections = client.connection_pool._available_connections
        assert connections
        assert {connection.retry.get_retries() for connection in connections} == {3}
    await client.aclose()


async def test_a_client_of_ours_is_closed(own_server: RedisServer) -> None:
    adapter, sync_adapter = redis_notify(own_server.url), SyncNotify(redis_notify(own_server.url))
    await adapter.listen("chain_ended", Ear())
    sync_adapter.listen("chain_ended", ThreadEar())
    await adapter.publish("chain_ended", ["a"])
    sync_adapter.publish("chain_ended", ["a"])
    with redis.Redis.from_url(own_server.url) as client:
        assert len(client.client_list()) == 5
        await adapter.close()
        sync_adapter.close()
        async with asyncio.timeout(45):
            while len(client.client_list()) > 1:
                await asyncio.sleep(0.005)


# Redis Cluster


@pytest.fixture
def cluster() -> Iterator[RedisServer]:
    """One node that has all slots: keys that do not belong together are refused as by many."""
    node = RedisServer(["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"])
    with redis.Redis.from_url(node.url, decode_responses=True) as client:
        client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
        info: Any = client.execute_command("CLUSTER INFO")
        while info["cluster_state"] != "ok":
            time.sleep(0.01)
            info = client.execute_command("CLUSTER INFO")
    yield node
    node.remove()


async def test_keys_of_one_script_share_a_slot(cluster: RedisServer) -> None:
    adapter = redis_notify(cluster.url)
    await adapter.provide_wake_hints({"a": 1, "b": 2, "{c}": 3})  # raises if they did not
    assert [await adapter.consume_wake_hint("{c}") for _ in range(4)] == [True, True, True, False]
    await adapter.close()


async def test_a_client_for_clusters(cluster: RedisServer) -> None:
    client: Any = await RedisCluster.from_url(cluster.url)
    adapter, ear = redis_notify(client), Ear()
    await adapter.listen("job_scheduled", ear)
    await adapter.provide_wake_hints({"a": 1, "b": 1})
    assert [await adapter.consume_wake_hint("a") for _ in range(2)] == [True, False]
    await adapter.publish("job_scheduled", ["a"])
    await ear.until("a")
    await adapter.close()
    await client.aclose()


# What others have written


@pytest.mark.parametrize("kind", ["text", "list", "large"])
async def test_a_hint_that_is_no_number_keeps_no_job_waiting(prefix: str, server: Any, kind: str) -> None:
    """The worker polls once in an hour: the message is what wakes it, and a broken hint does not keep it asleep."""
    key = f"{{{prefix}}}:wake-hint:step"
    if kind == "list":
        server.rpush(key, "a")
    else:
        server.set(key, "abc" if kind == "text" else "9" * 400)
    handlers = Handlers[Any]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        return attempt.job.number

    options: Any = {"jobs": [Step], "notify": redis_url(), "notify_prefix": prefix, "poll_interval": 3600}
    async with connect("memory://", **options) as client, Worker(client, handlers, poll_interval=3600):
        for number in (1, 2):
            assert await client.wait(await client.submit(Step(number=number)), timeout=30) == number
