"""`connect(notify=…)` with a broker of its own, whatever the database."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
import traceback
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from tests.conformance.postgres_harness import database
from tests.support.channels import adapter_of
from tests.support.jobs import Greet
from tests.support.redis import redis_url

import queuert
from queuert import DriverMissing, InvalidArgument
from queuert.adapters.broadcast import BroadcastNotify
from queuert.adapters.in_process import InProcessNotify
from queuert.adapters.postgres.notify.psycopg import PsycopgChannels
from queuert.adapters.redis.provider import RedisProvider
from queuert.wiring import options


@pytest.fixture(params=["connect", "connect_sync"])
def connect(request: pytest.FixtureRequest) -> Any:
    return getattr(queuert, request.param)


def provider_of(client: Any) -> Any:
    """What the client publishes through, once it has published."""
    return adapter_of(client)._current.provider._provider


async def test_a_broker_goes_with_any_database(tmp_path: Any) -> None:
    kinds: Any = {redis_url(): RedisProvider, database(): PsycopgChannels}
    for url in ("memory://", f"sqlite:///{tmp_path / 'jobs.db'}", database()):
        for broker, kind in kinds.items():
            options: Any = {"jobs": [Greet], "notify": broker, "notify_prefix": "here"}
            async with queuert.connect(url, **options) as client:
                await client.sessions.channel.publish("job_scheduled", ["a"])
                assert type(provider_of(client)) is kind
            with queuert.connect_sync(url, **options) as sync_client:
                sync_client.sessions.channel.publish("job_scheduled", ["a"])
                assert type(provider_of(sync_client)) is kind


@pytest.mark.parametrize("scheme", ["redis", "rediss", "unix"])
async def test_schemes_of_redis(scheme: str) -> None:
    async with queuert.connect("memory://", jobs=[Greet], notify=f"{scheme}:///tmp/redis.sock") as client:
        # It has connected to nothing yet.
        assert adapter_of(client).channels["chain_ended"] == "queuert:chain_completed"


@pytest.mark.parametrize(
    "url",
    ["redis://:secret/1@host", "redis://:secret#1@host", "redis://:secret@host:port", "redis:/u:secret@host"],
)
async def test_urls_of_brokers_are_checked_and_not_shown(connect: Any, url: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        connect("memory://", jobs=[Greet], notify=url)
    assert "secret" not in "".join(traceback.format_exception(caught.value, limit=0))


class Provider:
    """A broker of the user's own, within the process."""

    subscribers: ClassVar[list[Any]] = []

    def __init__(self) -> None:
        self.closed = False

    async def publish(self, channel: str, messages: Any) -> None:
        for channels, on_message in self.subscribers:
            if channel in channels:
                for message in messages:
                    on_message(channel, message)

    async def subscribe(self, channels: Any, on_message: Any, ready: Any) -> None:
        self.subscribers.append((channels, on_message))
        try:
            ready()
            await asyncio.Event().wait()
        finally:
            self.subscribers.remove((channels, on_message))

    async def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("how", ["provider", "function", "adapter"])
async def test_a_broker_of_ones_own(how: str) -> None:
    url, provider = f"memory://{uuid4()}", Provider()
    options: Any = {"jobs": [Greet], "poll_interval": 3600}
    mine: Any
    theirs: Any
    if how == "provider":
        mine, theirs = {"notify": provider, "notify_prefix": "mine"}, {"notify": Provider(), "notify_prefix": "mine"}
    elif how == "function":
        mine, theirs = ({"notify": made, "notify_prefix": "mine"} for made in (lambda: provider, Provider))
    else:
        mine, theirs = ({"notify": BroadcastNotify(made, prefix="mine")} for made in (provider, Provider))
    async with queuert.connect(url, **{**options, **mine}) as client:

        def use() -> str:
            with queuert.connect_sync(url, **{**options, **theirs}) as sync_client:
                with sync_client.transaction() as tx:
                    chain = sync_client.start(tx, Greet())
                asyncio.run_coroutine_threadsafe(complete(chain.id), loop)
                return str(sync_client.wait(chain, timeout=45))

        async def complete(chain: str) -> None:
            while not any("mine.chain_completed" in channels for channels, _ in Provider.subscribers):
                await asyncio.sleep(0.005)
            async with client.transaction() as tx, client.take_over(tx, chain) as current:
                await current.settle("hello")

        loop = asyncio.get_running_loop()
        assert await asyncio.to_thread(use) == "hello"
        assert client.hook_failures == 0
    assert provider.closed


async def test_an_adapter_is_used_as_it_is() -> None:
    adapter = InProcessNotify()
    async with queuert.connect("memory://", jobs=[Greet], notify=adapter) as client:
        assert adapter_of(client) is adapter
    with pytest.raises(InvalidArgument, match="notify_prefix is for brokers"):
        queuert.connect("memory://", jobs=[Greet], notify=adapter, notify_prefix="x")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"notify": "kafka://me:secret@host"}, r"kafka://….*not a supported broker.*redis://"),
        ({"notify": "redis:host"}, "notify must be"),
        ({"notify": "redis://host:port"}, "redis://user"),
        ({"notify": "redis://host", "notify_prefix": ""}, "prefix"),
        ({"notify": "redis://host", "notify_prefix": "a{b}"}, "prefix"),
        ({"notify": "postgresql://host:port/x"}, "notify must look like"),
        ({"notify_prefix": "x"}, "notify_prefix is for brokers"),
        ({"notify": 7}, "notify must be"),
        ({"notify": Provider(), "notify_prefix": ""}, "prefix"),
        ({"notify": Provider(), "notify_bucket": "x"}, "notify_bucket is for NATS"),
        ({"notify": None, "notify_prefix": "x"}, "notify_prefix is for brokers"),
    ],
)
def test_what_is_wrong_is_said_without_passwords(connect: Any, options: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        connect("memory://", jobs=[Greet], **options)
    assert "secret" not in str(caught.value)


def test_a_missing_package_is_named(connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def import_module(name: str) -> Any:
        if name == "redis":
            raise ModuleNotFoundError("No module named 'redis'")
        return importlib.import_module(name)

    monkeypatch.setattr(options, "import_module", import_module)
    with pytest.raises(DriverMissing, match=r'pip install "queuert\[redis\]"') as caught:
        connect("memory://", jobs=[Greet], notify="redis://host")
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_brokers_are_imported_only_when_they_are_used() -> None:
    program = "import sys, queuert; sys.exit(any(name in sys.modules for name in ('redis', 'nats', 'psycopg')))"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
