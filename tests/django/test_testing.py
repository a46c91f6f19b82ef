"""`queuert_django.testing`: jobs in a TestCase and in a TransactionTestCase."""

from __future__ import annotations

import unittest
from contextlib import suppress
from typing import Any

import pytest
from django.db import connections, transaction
from django.test import TestCase, TransactionTestCase
from tests.django.shop.jobs import Audit, Call, ChargeCard, Remind, ReserveStock, charge, reserve
from tests.django.shop.models import Order

from queuert import ChainNotTriggerable, InvalidArgument, TransactionRequired, testing
from queuert_django import get_client
from queuert_django.testing import atomic_required, clean, running


def run_case(case: type[unittest.TestCase]) -> None:
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    assert [text for _, text in [*result.errors, *result.failures]] == []
    assert result.testsRun


def place(alias: str, number: int) -> Any:
    with transaction.atomic(using=alias):
        Order(number=number).save(using=alias)
        return get_client(alias).start(connections[alias], ReserveStock(number=number))


@pytest.mark.parametrize("kind_of_case", [TestCase, TransactionTestCase])
def test_a_chain_runs_in_the_thread_of_the_test(alias: str, kind_of_case: type[TransactionTestCase]) -> None:
    class Orders(kind_of_case):
        databases = {alias}  # noqa: RUF012

        def tearDown(self) -> None:
            if kind_of_case is TransactionTestCase:
                clean(alias)

        def test_chain(self) -> None:
            client = get_client(alias)
            with running(alias) as run, testing.started(client) as started:
                chain = place(alias, 7)
                started.only(ReserveStock(number=7))
                run.until_idle()
                assert isinstance(run.failures[0].error, ValueError)
                with suppress(ChainNotTriggerable), transaction.atomic(using=alias):
                    client.trigger(connections[alias], chain)  # unless the retry, due in a moment, has run
                assert run.output(chain) == "paid 7"
                assert Order.objects.using(alias).get(number=7).paid
                assert started.of(Remind) == [Remind(number=7)]

        def test_nothing_is_left(self) -> None:
            assert not get_client(alias).list_jobs().items

    run_case(Orders)
    assert not get_client(alias).list_jobs().items


@pytest.mark.parametrize("kind_of_case", [TestCase, TransactionTestCase])
def test_jobs_with_a_limit_run(alias: str, kind_of_case: type[TransactionTestCase]) -> None:
    class Calls(kind_of_case):
        databases = {alias}  # noqa: RUF012

        def tearDown(self) -> None:
            if kind_of_case is TransactionTestCase:
                clean(alias)

        def test_limit(self) -> None:
            with running(alias) as run:
                with transaction.atomic(using=alias):
                    chains = [get_client(alias).start(connections[alias], Call(customer="Ann")) for _ in range(2)]
                assert [run.output(chain) for chain in chains] == [3, 3]

    run_case(Calls)


def test_one_handler_in_a_test_case(alias: str) -> None:
    class Handlers(TestCase):
        databases = {alias}  # noqa: RUF012

        def test_handler(self) -> None:
            Order(number=7).save(using=alias)
            client = get_client(alias)
            result = testing.attempt_sync(reserve, ReserveStock(number=7), client=client)
            assert result.continued == ChargeCard(number=7)
            assert result.phases == ("prepare",)
            paid = testing.attempt_sync(charge, ChargeCard(number=7), client=client, number=2)
            assert paid.returned == "paid 7"
            assert Order.objects.using(alias).get(number=7).paid
            failed = testing.attempt_sync(charge, ChargeCard(number=8), client=client, number=1)
            assert isinstance(failed.raised, ValueError)
            assert not Order.objects.using(alias).filter(number=-8).exists()

    run_case(Handlers)


def test_a_start_outside_of_an_atomic_block_is_noticed_in_a_test_case(alias: str) -> None:
    class Strictly(TestCase):
        databases = {alias}  # noqa: RUF012

        def test_start(self) -> None:
            client = get_client(alias)
            client.start(connections[alias], Remind(number=1))  # the block of the TestCase hides the mistake
            with atomic_required():
                place(alias, 7)
                with pytest.raises(TransactionRequired, match="and not the one of the test"):
                    client.start(connections[alias], Remind(number=2))

    run_case(Strictly)


def test_eager_mode_runs_jobs_at_the_commit(alias: str) -> None:
    class Eagerly(TestCase):
        databases = {alias}  # noqa: RUF012

        def test_start(self) -> None:
            client = get_client(alias)
            with running(alias, eager=True):
                with self.captureOnCommitCallbacks(using=alias, execute=True), transaction.atomic(using=alias):
                    chain = client.start(connections[alias], Remind(number=1))
                found = client.get_chain(chain)
                assert found is not None
                assert found.status == "completed"

    run_case(Eagerly)


def test_async_handlers_are_refused_when_one_is_needed(alias: str) -> None:
    client = get_client(alias)
    client.submit(Audit())
    with running(alias) as run, pytest.raises(InvalidArgument, match="'audit', which is `async def`"):
        run.until_idle()
