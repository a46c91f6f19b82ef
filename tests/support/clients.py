"""Clients of PostgreSQL with a pool of a given size: by URL, and over an engine of SQLAlchemy."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

import queuert
import queuert.sqlalchemy
from queuert import Client, Job

Connect = Callable[[str], AbstractAsyncContextManager[Client[Any]]]


def clients_with(job: type[Job[Any, Any]], size: int, **engine: Any) -> dict[str, Connect]:
    """What connects to a URL, by the name of its kind. `engine`: the options of the engines."""

    def by_url(scheme: str) -> Connect:
        return lambda url: queuert.connect(url.replace("postgresql:", f"{scheme}:"), jobs=[job], pool_size=size)

    def by_engine(scheme: str) -> Connect:
        @asynccontextmanager
        async def connect(url: str) -> AsyncGenerator[Client[Any]]:
            made = create_async_engine(url.replace("postgresql:", f"{scheme}:"), **engine)
            try:
                async with queuert.sqlalchemy.connect(made, jobs=[job]) as client:
                    yield client
            finally:
                await made.dispose()

        return connect

    return {
        "psycopg": by_url("postgresql+psycopg"),
        "asyncpg": by_url("postgresql+asyncpg"),
        "sqlalchemy-psycopg": by_engine("postgresql+psycopg"),
        "sqlalchemy-asyncpg": by_engine("postgresql+asyncpg"),
    }


def in_soak_over_sqlalchemy(names: Iterable[str]) -> list[Any]:
    """Parameters for tests of seconds: engines run on the same drivers, so they are for `make soak`."""
    return [pytest.param(name, marks=pytest.mark.soak) if name.startswith("sqlalchemy") else name for name in names]
