"""The order pipeline, tested with `queuert.testing`: `cd examples && pytest test_pipeline.py`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import orders
import queuert
from database import Db, execute
from orders import ApproveOrder, AskForReview, ChargeCard, Parcel, ReserveStock, SendInvoice, ShipOrder
from queuert import Client, testing


class FakeGateway(orders.Gateway):
    """The payment service, with all its lost answers. It does not crash with us."""

    charge = testing.outside(orders.Gateway.charge)


@pytest.fixture(autouse=True)
def gateway(monkeypatch: pytest.MonkeyPatch) -> orders.Gateway:
    made = FakeGateway()
    monkeypatch.setattr(orders, "gateway", made)
    return made


@asynccontextmanager
async def open_shop(directory: Path, clock: testing.Clock | None = None) -> AsyncGenerator[Client[Db]]:
    async with queuert.connect(f"sqlite:///{directory / 'shop.db'}", jobs=orders.JOBS, clock=clock) as client:
        async with client.transaction() as tx:
            for table in orders.TABLES:
                await execute(tx, table)
        yield client


async def rows(client: Client[Db], query: str) -> list[tuple[object, ...]]:
    async with client.transaction() as tx:
        return [tuple(row) for row in await execute(tx, query)]


async def test_each_handler(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as client:
        await orders.place_basket(client, "Ann", {1: 100, 2: orders.LARGE + 1})
        reserved = await testing.attempt(orders.reserve, ReserveStock(order_id=1), client=client)
        assert reserved.continued == ChargeCard(order_id=1)
        charged = await testing.attempt(orders.charge, ChargeCard(order_id=1), client=client)
        assert charged.continued == ShipOrder(order_id=1, cents=100)
        assert (charged.phases, charged.mode) == (("prepare", "complete"), "staged")
        large = await testing.attempt(orders.charge, ChargeCard(order_id=2), client=client)
        assert large.continued == ApproveOrder(order_id=2, cents=orders.LARGE + 1)
        shipped = await testing.attempt(orders.ship, ShipOrder(order_id=1, cents=100))
        assert shipped.returned == Parcel(1, 100, "P000001")


async def test_an_invoice_adds_up_its_orders_and_asks_for_a_review(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as client:
        parcels = [testing.completed(ReserveStock, Parcel(number, 100 * number, "P")) for number in (1, 2)]
        job = SendInvoice(customer="Ann", orders=parcels)
        result = await testing.attempt(orders.send_invoice, job, client=client)
        assert result.returned == 300
        result.started.only(AskForReview(customer="Ann").set(after=orders.REVIEW_AFTER))
        assert await rows(client, "SELECT * FROM invoices") == [("Ann", 300, 2)]


async def test_an_answer_that_is_lost_costs_one_attempt(tmp_path: Path, gateway: orders.Gateway) -> None:
    gateway.charged = {str(number): "paid" for number in range(9)}  # the tenth answer is lost
    async with open_shop(tmp_path) as client:
        await orders.place_basket(client, "Ann", {1: 100})
        result = await testing.attempt(orders.charge, ChargeCard(order_id=1), client=client, handlers=orders.handlers)
        assert isinstance(result.raised, ConnectionError)
        assert (result.status, result.retry_in) == ("pending", 0.3)
        assert await rows(client, "SELECT * FROM payments") == []


async def test_a_basket_from_its_first_order_to_the_letter(tmp_path: Path) -> None:
    clock = testing.Clock()
    async with open_shop(tmp_path, clock) as client, testing.running(client, orders.handlers) as run:
        (small, large), invoice = await orders.place_basket(client, "Ann", {1: 100, 2: orders.LARGE + 1})
        assert await run.output(small) == Parcel(1, 100, "P000001")
        assert await orders.waiting_for_approval(client) == [large.id]
        await orders.approve(client, large.id, "Bob")
        assert await run.output(invoice, skip_time=True) == orders.LARGE + 101
        assert await rows(client, "SELECT customer FROM letters") == [("Ann",)]
        assert not run.failures


@testing.crash_everywhere
async def test_a_crash_changes_nothing(crash: testing.Crash) -> object:
    orders.gateway = FakeGateway()
    async with open_shop(crash.directory) as client, crash.running(client, orders.handlers) as run:
        (order,), _ = await orders.place_basket(client, "Ann", {1: 100})
        return {
            "parcel": await run.output(order),
            "charged": list(orders.gateway.charged.values()),
            "payments": await rows(client, "SELECT * FROM payments"),
            "invoices": await rows(client, "SELECT * FROM invoices"),
        }
