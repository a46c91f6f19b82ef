"""The service and its jobs, tested with `queuert.testing`: `cd examples && pytest flask_orders`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from sqlalchemy.orm import Session

from flask_orders import app as service
from flask_orders import orders
from flask_orders.orders import ReserveStock, ShipOrder, handlers, reserve
from queuert import SyncClient, testing


@contextmanager
def open_service(directory: Path) -> Generator[Flask]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(orders, "DATABASE_URL", f"sqlite:///{directory / 'orders.db'}")
        app = service.create_app()
    try:
        yield app
    finally:
        app.extensions["closing"].close()


def client_of(app: Flask) -> SyncClient[Session]:
    client: SyncClient[Session] = app.extensions["queuert"]
    return client


def test_an_order_is_shipped(tmp_path: Path) -> None:
    with open_service(tmp_path) as app:
        http, client = app.test_client(), client_of(app)
        with testing.started(client) as started, testing.running(client, handlers) as run:
            placed: Any = http.post("/orders", json={"product": "lamp"}).get_json()
            chain = started.only(ReserveStock(order_id=placed["order"]))
            assert run.output(chain) == f"parcel-{placed['order']}"
            assert http.get(f"/orders/{placed['order']}").get_json() == {"product": "lamp", "state": "shipped"}
            assert http.get(f"/parcels/{chain.id}").get_json() == {"parcel": f"parcel-{placed['order']}"}


def test_what_is_sold_out_starts_nothing(tmp_path: Path) -> None:
    with open_service(tmp_path) as app, testing.started(client_of(app)) as started:
        assert app.test_client().post("/orders", json={"product": "unicorn"}).status_code == 409
        started.nothing()


def test_one_handler(tmp_path: Path) -> None:
    with open_service(tmp_path) as app:
        order_id: int = app.test_client().post("/orders", json={"product": "lamp"}).get_json()["order"]
        result = testing.attempt_sync(reserve, ReserveStock(order_id=order_id), client=client_of(app))
        assert result.continued == ShipOrder(order_id=order_id)


@testing.crash_everywhere
def test_a_crash_changes_nothing(crash: testing.Crash) -> object:
    with open_service(crash.directory) as app:
        http, client = app.test_client(), client_of(app)
        with crash.running(client, handlers) as run:
            placed: Any = http.post("/orders", json={"product": "lamp"}).get_json()
            run.until_idle()
            return http.get(f"/orders/{placed['order']}").get_json(), http.get(f"/parcels/{placed['chain']}").get_json()
