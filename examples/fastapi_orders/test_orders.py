"""The jobs of the service, tested with `queuert.testing`: `cd examples && pytest fastapi_orders`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from fastapi import HTTPException
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from fastapi_orders.app import Base, Order, ReserveStock, ShipOrder, handlers, reserve, ship
from queuert import Client, testing
from queuert.sqlalchemy import connect


class Shop:
    """The service's database."""

    def __init__(self, sessions: async_sessionmaker[AsyncSession], client: Client[AsyncSession]) -> None:
        self.sessions = sessions
        self.client = client

    async def order(self) -> int:
        async with self.sessions.begin() as session:
            order = Order(product="lamp")
            session.add(order)
            await session.flush()
            return order.id

    async def states(self) -> list[str]:
        async with self.sessions() as session:
            return list(await session.scalars(select(Order.state)))


@asynccontextmanager
async def open_shop(directory: Path) -> AsyncGenerator[Shop]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{directory / 'orders.db'}")
    try:
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        sessions = async_sessionmaker(engine, expire_on_commit=False)
        async with connect(sessions, jobs=[ReserveStock]) as client:
            yield Shop(sessions, client)
    finally:
        await engine.dispose()


async def test_each_handler(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        order_id = await shop.order()
        reserved = await testing.attempt(reserve, ReserveStock(order_id=order_id), client=shop.client)
        assert reserved.continued == ShipOrder(order_id=order_id)
        assert await shop.states() == ["reserved"]
        shipped = await testing.attempt(ship, ShipOrder(order_id=order_id), client=shop.client)
        assert shipped.returned == f"parcel-{order_id}"
        assert await shop.states() == ["shipped"]


async def test_a_missing_order_fails_and_is_tried_again(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        result = await testing.attempt(reserve, ReserveStock(order_id=99), client=shop.client, handlers=handlers)
        assert result.raised is not None
        assert (result.status, result.retry_in) == ("pending", 10)


async def test_the_order_and_its_chain_commit_together(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        with testing.started(shop.client) as started:
            with suppress(HTTPException):
                async with shop.sessions.begin() as session:
                    await shop.client.start(session, ReserveStock(order_id=1))
                    raise HTTPException(409, "sold out")
            started.nothing()
            async with shop.sessions.begin() as session:
                await shop.client.start(session, ReserveStock(order_id=2))
        started.only(ReserveStock(order_id=2))


async def test_an_order_is_shipped(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop, testing.running(shop.client, handlers) as run:
        order_id = await shop.order()
        chain = await shop.client.submit(ReserveStock(order_id=order_id))
        assert await run.output(chain) == f"parcel-{order_id}"
        assert await shop.states() == ["shipped"]


@testing.crash_everywhere
async def test_a_crash_changes_nothing(crash: testing.Crash) -> object:
    async with open_shop(crash.directory) as shop, crash.running(shop.client, handlers) as run:
        chain = await shop.client.submit(ReserveStock(order_id=await shop.order()))
        return {"parcel": await run.output(chain), "orders": await shop.states()}
