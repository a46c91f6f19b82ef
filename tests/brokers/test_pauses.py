"""The whole process stands still for a while: that is no fault of the channel, and announcing goes on at once."""

from __future__ import annotations

import asyncio
import re
import signal
from uuid import uuid4

import pytest
from tests.behaviour.children import child
from tests.behaviour.programs.announcing import PATIENCE
from tests.conformance.postgres_harness import database, empty
from tests.support.nats import nats_url
from tests.support.redis import redis_url

BROKERS = {"redis": redis_url, "nats": nats_url}


@pytest.mark.parametrize("channel", ["redis", "nats", "psycopg", "asyncpg"])
async def test_a_stopped_process_announces_again_at_once(channel: str) -> None:
    if channel in BROKERS:
        url, notify = f"memory://{uuid4()}", BROKERS[channel]()
    else:
        empty()
        url, notify = database().replace("postgresql:", f"postgresql+{channel}:"), "postgres"
    async with child("announcing", url, notify) as process:
        assert await process.says() == "started"
        for _ in range(2):
            process.send(signal.SIGSTOP)
            await asyncio.sleep(1.2 * PATIENCE)
            process.send(signal.SIGCONT)
            await asyncio.sleep(0.05)
        process.tell()
        assert re.fullmatch(r"0 of \d+ failed", await process.says())
        assert await process.exit_code() == 0
