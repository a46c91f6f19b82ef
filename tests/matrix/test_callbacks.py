"""The user's own callbacks in six shapes of a transaction, with every kind of handle."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.matrix.handles import HANDLES, Handle
from tests.matrix.more_handles import MORE
from tests.support.jobs import Greet


class Boom(Exception):
    """What the caller's code may raise."""


@pytest.fixture(params=[*HANDLES, *MORE], ids=repr)
async def handle(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Handle]:
    chosen: Handle = request.param
    async with chosen.opened(tmp_path) as opened:
        yield opened


class Log:
    """What was called, and which of the caller's rows were committed by then."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.words: list[str] = []

    def note(self, word: str) -> Callable[[], None]:
        return lambda: self.words.append(f"{word} {self._handle.database.orders()}")

    async def register(self, word: str) -> None:
        await self._handle.register(self.note(f"{word} committed"), self.note(f"{word} rolled back"))

    async def read(self) -> list[str]:
        await self._handle.settled()
        return self.words


@pytest.fixture
def log(handle: Handle) -> Log:
    return Log(handle)


async def test_commit(handle: Handle, log: Log) -> None:
    async with handle.transaction():
        await log.register("early")
        await handle.write(1)
        await log.register("late")
        assert await log.read() == []
    assert await log.read() == ["early committed [1]", "late committed [1]"]


async def test_commit_with_a_job(handle: Handle, log: Log) -> None:
    async with handle.transaction():
        await handle.write(1)
        await handle.start(Greet())
        await log.register("mine")
    assert await log.read() == ["mine committed [1]"]
    assert handle.announced.types == ["greet"]


async def test_rollback(handle: Handle, log: Log) -> None:
    with pytest.raises(Boom):
        async with handle.transaction():
            await log.register("early")
            await handle.write(1)
            await log.register("late")
            raise Boom
    assert await log.read() == ["early rolled back []", "late rolled back []"]
    async with handle.transaction():  # and they do not turn up later
        await handle.write(2)
        await log.register("next")
    assert (await log.read())[2:] == ["next committed [2]"]


async def test_a_savepoint_that_is_undone(handle: Handle, log: Log) -> None:
    async with handle.transaction():
        await log.register("outer")
        with suppress(Boom):
            async with handle.savepoint():
                await handle.write(1)
                await log.register("inner")
                raise Boom
        assert await log.read() == ["inner rolled back []"]
        await handle.write(2)
        async with handle.savepoint():
            await log.register("kept")
    assert await log.read() == ["inner rolled back []", "outer committed [2]", "kept committed [2]"]


async def test_a_savepoint_that_is_kept_in_a_transaction_that_is_not(handle: Handle, log: Log) -> None:
    with pytest.raises(Boom):
        async with handle.transaction():
            await handle.write(1)
            async with handle.savepoint():
                await log.register("inner")
            await log.register("outer")
            raise Boom
    assert await log.read() == ["inner rolled back []", "outer rolled back []"]


async def test_a_savepoint_undone_inside_of_one_that_is_kept(handle: Handle, log: Log) -> None:
    async with handle.transaction():
        await handle.write(1)
        async with handle.savepoint():
            await log.register("middle")
            with suppress(Boom):
                async with handle.savepoint():
                    async with handle.savepoint():
                        await log.register("innermost")
                    await log.register("inner")
                    raise Boom
            assert await log.read() == ["innermost rolled back []", "inner rolled back []"]
    assert (await log.read())[2:] == ["middle committed [1]"]
