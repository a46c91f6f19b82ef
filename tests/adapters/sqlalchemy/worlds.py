"""Engines, clients and what is announced, for tests that are about one thing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from tests.matrix.handles import Announced, Recorder
from tests.support.jobs import JOBS

from queuert import Client, SyncClient
from queuert.jobs.registry import Registry
from queuert.sqlalchemy import connect, connect_sync


class Visible:
    """For `Announced`, where the time of the announcement is not in question."""

    def jobs(self) -> list[str]:
        return []


def with_driver(url: str, driver: str) -> str:
    return url.replace("postgresql", f"postgresql+{driver}", 1).replace("sqlite:", f"sqlite+{driver}:", 1)


@contextmanager
def engine_for(url: str, driver: str = "psycopg", **options: Any) -> Generator[Engine]:
    engine = create_engine(with_driver(url, driver), **options)
    try:
        yield engine
    finally:
        engine.dispose()


@asynccontextmanager
async def async_engine_for(url: str, driver: str = "psycopg", **options: Any) -> AsyncGenerator[AsyncEngine]:
    engine = create_async_engine(with_driver(url, driver), **options)
    try:
        yield engine
    finally:
        await engine.dispose()


@contextmanager
def client_for(source: Any) -> Generator[tuple[SyncClient[Any], list[str]]]:
    """A client, and the types that it announces."""
    announced = Announced(Visible())  # type: ignore[arg-type]
    state: Any = connect_sync(source, jobs=[], notify=None).sessions.storage
    with SyncClient(state, Recorder(announced), Registry(JOBS)) as client:
        yield client, announced.types


@asynccontextmanager
async def async_client_for(source: Any) -> AsyncGenerator[tuple[Client[Any], list[str]]]:
    announced = Announced(Visible())  # type: ignore[arg-type]
    state: Any = connect(source, jobs=[], notify=None).sessions.storage
    async with Client(state, Recorder(announced), Registry(JOBS)) as client:
        yield client, announced.types
