"""The project's tests, with `queuert.testing`: `python -m django_orders.manage test`."""

from __future__ import annotations

import json

from django.test import TestCase, TransactionTestCase

from django_orders.shop.jobs import ReserveStock, ShipOrder, reserve
from django_orders.shop.models import Order
from queuert import testing
from queuert_django import get_client
from queuert_django.testing import atomic_required, clean, running


class OrderTests(TestCase):
    def place(self, product: str) -> dict[str, int]:
        answer = self.client.post("/orders", json.dumps({"product": product}), content_type="application/json")
        placed: dict[str, int] = answer.json()
        return placed

    def test_an_order_is_shipped(self) -> None:
        with running() as run, testing.started(get_client()) as started:
            with atomic_required():
                order_id = self.place("lamp")["order"]
            chain = started.only(ReserveStock(order_id=order_id))
            assert run.output(chain) == f"parcel-{order_id}"
        assert Order.objects.get(id=order_id).state == "shipped"

    def test_what_is_sold_out_starts_nothing(self) -> None:
        with testing.started(get_client()) as started:
            self.place("unicorn")
        started.nothing()
        assert not Order.objects.exists()

    def test_a_handler(self) -> None:
        order = Order.objects.create(product="lamp")
        result = testing.attempt_sync(reserve, ReserveStock(order_id=order.pk), client=get_client())
        assert result.continued == ShipOrder(order_id=order.pk)
        order.refresh_from_db()
        assert order.state == "reserved"


class CommittedTests(TransactionTestCase):
    def tearDown(self) -> None:
        clean()

    def test_jobs_run_at_the_commit(self) -> None:
        with running(eager=True):
            self.client.post("/orders", '{"product": "lamp"}', content_type="application/json")
        assert Order.objects.get().state == "shipped"
