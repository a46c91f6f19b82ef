"""A transaction that is cancelled while it commits: it is committed, as docs/transactions.md says."""

from __future__ import annotations

import asyncio

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import Step, patiently

from queuert import Chain

pytestmark = pytest.mark.drivers


async def test_a_cancellation_during_commit(setting: Setting) -> None:
    if setting.state == "memory":
        pytest.skip("its commits do not wait")
    async with setting.connect([Step]) as client:
        started: list[Chain[Step]] = []

        async def work() -> None:
            async with client.transaction() as tx:
                started.append(await client.start(tx, Step()))
                # The next thing that the loop does, while the end of the block waits for COMMIT.
                asyncio.get_running_loop().call_soon(task.cancel)

        task = asyncio.create_task(work())
        with pytest.raises(asyncio.CancelledError):
            await patiently(task)
        assert await client.get_chain(started[0]) is not None


async def test_a_cancellation_before_the_end_of_the_block(setting: Setting) -> None:
    async with setting.connect([Step]) as client:
        started: list[Chain[Step]] = []
        inside = asyncio.Event()

        async def work() -> None:
            async with client.transaction() as tx:
                started.append(await client.start(tx, Step()))
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await patiently(inside.wait())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await patiently(task)
        assert await client.get_chain(started[0]) is None
