"""`connect(notify=…)` with a broker of its own, whatever the database."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import pytest
from tests.conformance.postgres_harness import database
from tests.support.jobs import Greet
from tests.support.redis import redis_url

import queuert
from queuert import DriverMissing, InvalidArgument
from queuert.adapters.postgres.notify.adapter import PostgresNotify
from queuert.adapters.postgres.notify.sync import SyncPostgresNotify
from queuert.adapters.redis.notify import RedisNotify
from queuert.adapters.redis.notify_sync import SyncRedisNotify
from queuert.wiring import options


@pytest.fixture(params=["connect", "connect_sync"])
def connect(request: pytest.FixtureRequest) -> Any:
    return getattr(queuert, request.param)


async def test_a_broker_goes_with_any_database(tmp_path: Any) -> None:
    kinds: Any = {redis_url(): (RedisNotify, SyncRedisNotify), database(): (PostgresNotify, SyncPostgresNotify)}
    for url in ("memory://", f"sqlite:///{tmp_path / 'jobs.db'}", database()):
        for broker, (kind, sync_kind) in kinds.items():
            options: Any = {"jobs": [Greet], "notify": broker, "notify_prefix": "here"}
            async with queuert.connect(url, **options) as client:
                assert type(client.notify) is kind
            with queuert.connect_sync(url, **options) as sync_client:
                assert type(sync_client.notify) is sync_kind


@pytest.mark.parametrize("scheme", ["redis", "rediss", "unix"])
async def test_schemes_of_redis(scheme: str) -> None:
    async with queuert.connect("memory://", jobs=[Greet], notify=f"{scheme}:///tmp/redis.sock") as client:
        assert type(client.notify) is RedisNotify  # which has connected to nothing yet


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"notify": "kafka://me:secret@host"}, r"kafka://….*redis://"),
        ({"notify": "redis:host"}, "notify must be"),
        ({"notify": "redis://host:port"}, "redis://user"),
        ({"notify": "redis://host", "notify_prefix": ""}, "prefix"),
        ({"notify": "redis://host", "notify_prefix": "a{b}"}, "prefix"),
        ({"notify": "postgresql://host:port/x"}, "notify must look like"),
        ({"notify_prefix": "x"}, "notify_prefix is for brokers"),
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
