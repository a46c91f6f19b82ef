"""An order service: a request writes an order and starts its chain in one transaction.

The worker runs in the application's lifespan.

    pip install 'queuert[sqlalchemy,aiosqlite]' fastapi uvicorn
    cd examples && uvicorn fastapi_orders.app:app

DATABASE_URL may be postgresql+psycopg://…, postgresql+asyncpg://… or sqlite+aiosqlite:///….
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypedDict

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from queuert import Attempt, Client, EntryJob, Handlers, Job, Worker
from queuert.sqlalchemy import connect

# The service's own table


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    product: Mapped[str]
    state: Mapped[str] = mapped_column(default="new")


# The jobs of an order


class ReserveStock(EntryJob[str, "ShipOrder"], name="reserve-stock"):
    """The chain's result is the parcel number."""

    order_id: int


class ShipOrder(Job[str], name="ship-order"):
    order_id: int


handlers = Handlers[AsyncSession]()


@handlers.handles(ReserveStock)
async def reserve(attempt: Attempt[ReserveStock, AsyncSession]) -> ShipOrder:
    async with attempt.complete() as tx:
        order = await tx.connection.get_one(Order, attempt.job.order_id)
        order.state = "reserved"
        return ShipOrder(order_id=order.id)


@handlers.handles(ShipOrder)
async def ship(attempt: Attempt[ShipOrder, AsyncSession]) -> str:
    async with attempt.complete() as tx:
        order = await tx.connection.get_one(Order, attempt.job.order_id)
        order.state = "shipped"
        return f"parcel-{order.id}"


# The service


class State(TypedDict):
    sessions: async_sessionmaker[AsyncSession]
    client: Client[AsyncSession]


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncGenerator[State]:
    engine = create_async_engine(os.environ.get("DATABASE_URL", "sqlite+aiosqlite:///orders.db"))
    try:
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        sessions = async_sessionmaker(engine, expire_on_commit=False)
        async with connect(sessions, jobs=[ReserveStock]) as client, Worker(client, [handlers], concurrency=5):
            yield {"sessions": sessions, "client": client}
    finally:
        await engine.dispose()


app = FastAPI(lifespan=lifespan)


class NewOrder(BaseModel):
    product: str


class Placed(BaseModel):
    order: int
    chain: str


class Shown(BaseModel):
    product: str
    state: str


@app.post("/orders", status_code=201)
async def place_order(new: NewOrder, request: Request) -> Placed:
    client: Client[AsyncSession] = request.state.client
    async with request.state.sessions.begin() as session:
        order = Order(product=new.product)
        session.add(order)
        await session.flush()  # assigns the id
        chain = await client.start(session, ReserveStock(order_id=order.id))
        if new.product == "unicorn":
            raise HTTPException(409, "sold out")  # no order, and no chain
    return Placed(order=order.id, chain=chain.id)


@app.get("/orders")
async def count_orders(request: Request) -> int:
    async with request.state.sessions() as session:
        return len((await session.scalars(Order.__table__.select())).all())


@app.get("/orders/{order_id}")
async def show_order(order_id: int, request: Request) -> Shown:
    async with request.state.sessions() as session:
        order = await session.get(Order, order_id)
    if order is None:
        raise HTTPException(404)
    return Shown(product=order.product, state=order.state)


@app.get("/parcels/{chain_id}")
async def wait_for_parcel(chain_id: str, request: Request) -> str:
    client: Client[AsyncSession] = request.state.client
    chain = await client.get_chain(chain_id, ReserveStock)
    if chain is None:
        raise HTTPException(404)
    return await client.wait(chain, timeout=30)
