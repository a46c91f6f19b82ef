"""The web process: a request writes an order and starts its chain in one transaction.

    pip install 'queuert[sqlalchemy,aiosqlite]' flask
    cd examples && flask --app flask_orders.app run
    cd examples && python -m flask_orders.worker

DATABASE_URL may be postgresql+psycopg://… or sqlite:///….
"""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from typing import Any

from flask import Flask, abort, request
from sqlalchemy.orm import sessionmaker

from flask_orders.orders import Order, ReserveStock, make_engine
from queuert.sqlalchemy import connect_sync

Answer = tuple[dict[str, Any], int]


def create_app() -> Flask:
    app = Flask(__name__)
    closing = app.extensions["closing"] = ExitStack()
    atexit.register(closing.close)
    engine = make_engine()
    closing.callback(engine.dispose)
    sessions = sessionmaker(engine)
    client = closing.enter_context(connect_sync(sessions, jobs=[ReserveStock]))
    app.extensions["queuert"] = client  # for tests

    @app.post("/orders")
    def place_order() -> Answer:  # pyright: ignore[reportUnusedFunction]
        product = request.get_json()["product"]
        with sessions.begin() as session:
            order = Order(product=product)
            session.add(order)
            session.flush()  # assigns the id
            chain = client.start(session, ReserveStock(order_id=order.id))
            placed = {"order": order.id, "chain": chain.id}
            if product == "unicorn":
                abort(409)  # no order, and no chain
        return placed, 201

    @app.get("/orders/<int:order_id>")
    def show_order(order_id: int) -> Answer:  # pyright: ignore[reportUnusedFunction]
        with sessions() as session:
            order = session.get(Order, order_id) or abort(404)
            return {"product": order.product, "state": order.state}, 200

    @app.get("/parcels/<chain_id>")
    def wait_for_parcel(chain_id: str) -> Answer:  # pyright: ignore[reportUnusedFunction]
        chain = client.get_chain(chain_id, ReserveStock) or abort(404)
        return {"parcel": client.wait(chain, timeout=30)}, 200

    return app
