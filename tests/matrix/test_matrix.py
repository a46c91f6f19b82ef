"""Commit, rollback and savepoints: six shapes of a transaction with every kind of handle.

Whatever the handle, jobs are where the caller's rows are, and are announced after the commit or not at all.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.matrix.handles import HANDLES, Handle
from tests.matrix.more_handles import MORE
from tests.support.jobs import Greet, Nothing, Rate


class Boom(Exception):
    """What the caller's code may raise."""


@pytest.fixture(params=[*HANDLES, *MORE], ids=repr)
async def handle(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Handle]:
    chosen: Handle = request.param
    async with chosen.opened(tmp_path) as opened:
        yield opened


async def outcome(handle: Handle) -> tuple[list[int], list[str], list[str]]:
    """The caller's rows, the jobs, and what was announced."""
    await handle.settled()
    assert handle.announced.too_early == []
    return handle.database.orders(), handle.database.jobs(), sorted(handle.announced.types)


async def test_commit(handle: Handle) -> None:
    async with handle.transaction():
        await handle.write(1)
        await handle.start(Greet())
        await handle.start(Rate())
        await handle.settled()
        assert handle.announced.types == []
    assert await outcome(handle) == ([1], ["greet", "rate"], ["greet", "rate"])


async def test_rollback(handle: Handle) -> None:
    with pytest.raises(Boom):
        async with handle.transaction():
            await handle.write(1)
            await handle.start(Greet())
            raise Boom
    assert await outcome(handle) == ([], [], [])
    async with handle.transaction():  # and what was rolled back does not turn up later
        await handle.start(Rate())
    assert await outcome(handle) == ([], ["rate"], ["rate"])


async def test_a_savepoint_that_is_kept(handle: Handle) -> None:
    async with handle.transaction():
        await handle.write(1)
        await handle.start(Greet())
        async with handle.savepoint():
            await handle.write(2)
            await handle.start(Rate())
        await handle.settled()
        assert handle.announced.types == []
    assert await outcome(handle) == ([1, 2], ["greet", "rate"], ["greet", "rate"])


async def test_a_savepoint_that_is_undone(handle: Handle) -> None:
    async with handle.transaction():
        with suppress(Boom):
            async with handle.savepoint():
                await handle.write(1)
                await handle.start(Greet())
                raise Boom
        await handle.write(2)
        await handle.start(Rate())
        with suppress(Boom):
            async with handle.savepoint():
                await handle.start(Nothing())
                raise Boom
    assert await outcome(handle) == ([2], ["rate"], ["rate"])


async def test_a_savepoint_that_is_kept_in_a_transaction_that_is_not(handle: Handle) -> None:
    with pytest.raises(Boom):
        async with handle.transaction():
            await handle.write(1)
            async with handle.savepoint():
                await handle.write(2)
                await handle.start(Greet())
            await handle.start(Rate())
            raise Boom
    assert await outcome(handle) == ([], [], [])


async def test_a_savepoint_undone_inside_of_one_that_is_kept(handle: Handle) -> None:
    async with handle.transaction():
        async with handle.savepoint():
            await handle.write(1)
            await handle.start(Greet())
            with suppress(Boom):
                async with handle.savepoint():
                    await handle.write(2)
                    await handle.start(Nothing())
                    async with handle.savepoint():
                        await handle.start(Nothing())
                    raise Boom
            await handle.start(Rate())
        await handle.write(3)
    assert await outcome(handle) == ([1, 3], ["greet", "rate"], ["greet", "rate"])
