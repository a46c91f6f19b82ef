"""Chains started in Django's atomic blocks: what commits, what is rolled back, what is announced."""

from __future__ import annotations

import asyncio
import threading
import unittest
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, connection, connections, transaction
from tests.django.conftest import database, recording_client
from tests.django.shop.jobs import Remind, ReserveStock
from tests.django.shop.models import Order
from tests.support.django import added, sqlite_settings
from tests.support.ears import ThreadEar

from queuert import (
    ClientClosed,
    StorageError,
    SyncClient,
    TransactionMisused,
    TransactionNested,
    TransactionRequired,
)
from queuert.adapters.django import DjangoConnection
from queuert.errors import InvalidArgument
from queuert.ports.notify import Announced
from queuert_django import get_client

Client = SyncClient[DjangoConnection]


@pytest.fixture
def recording(alias: str) -> tuple[Client, list[list[str]]]:
    return recording_client(alias)


@pytest.fixture
def client(recording: tuple[Client, list[list[str]]]) -> Client:
    return recording[0]


@pytest.fixture
def told(recording: tuple[Client, list[list[str]]]) -> list[list[str]]:
    return recording[1]


def stored(alias: str, client: Client) -> tuple[int, int]:
    return Order.objects.using(alias).count(), len(client.list_chains().items)


def order(alias: str, number: int) -> None:
    Order(number=number).save(using=alias)


# What commits


def test_order_and_job_commit_together_and_are_announced_after_it(
    alias: str, client: Client, told: list[list[str]]
) -> None:
    with transaction.atomic(using=alias):
        order(alias, 1)
        chain = client.start(connections[alias], ReserveStock(number=1))
        assert client.get_chain(chain, tx=connections[alias]) is not None
        assert client.get_chain(chain) is not None  # on the same connection, as everything in Django
        assert told == []
    assert stored(alias, client) == (1, 1)
    assert told == [["reserve-stock"]]


def test_an_announcement_tells_how_many_jobs_there_are(tmp_path: Path) -> None:
    """Over PostgreSQL: so a few of many idle workers claim. Those of one announcement do not count for the next."""
    with database("postgres", tmp_path) as alias:
        client, ear = get_client(alias), ThreadEar()
        client.sessions.channel.listen("job_scheduled", ear)
        client.sessions.channel.listen("chain_ended", ear)
        with transaction.atomic(using=alias):
            client.start_many(connections[alias], [ReserveStock(number=number) for number in range(300)])
        ear.until("reserve-stock")
        with transaction.atomic(using=alias):
            chain = client.start(connections[alias], Remind(number=1))
        ear.until("remind")
        with client.transaction() as tx:
            client.cancel(tx, chain)
        ear.until(chain.id)
        client.close()
    assert ear.heard == ["reserve-stock", "remind", chain.id]
    assert [value.draw.jobs if isinstance(value, Announced) else None for value in ear.heard] == [300, 1, None]


def test_what_is_rolled_back_is_not_announced(alias: str, client: Client, told: list[list[str]]) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=alias):
        order(alias, 1)
        client.start(connections[alias], ReserveStock(number=1))
        raise ZeroDivisionError
    with transaction.atomic(using=alias):
        order(alias, 1)
        client.start(connections[alias], ReserveStock(number=1))
        transaction.set_rollback(True, using=alias)
    assert stored(alias, client) == (0, 0)
    assert told == []


def test_an_inner_block_that_is_rolled_back_takes_its_announcements_along(
    alias: str, client: Client, told: list[list[str]]
) -> None:
    with transaction.atomic(using=alias):
        with pytest.raises(ZeroDivisionError), transaction.atomic(using=alias):
            order(alias, 1)
            client.start(connections[alias], Remind(number=1))
            with transaction.atomic(using=alias):
                client.start(connections[alias], Remind(number=2))
            raise ZeroDivisionError
        order(alias, 2)
        client.start(connections[alias], ReserveStock(number=2))
    assert stored(alias, client) == (1, 1)
    assert told == [["reserve-stock"]]


def test_what_stands_in_the_same_blocks_is_announced_at_once(alias: str, client: Client, told: list[list[str]]) -> None:
    with transaction.atomic(using=alias):
        for number in range(3):
            client.start(connections[alias], Remind(number=number))
        with transaction.atomic(using=alias):
            client.start(connections[alias], ReserveStock(number=1))
            client.start(connections[alias], ReserveStock(number=2))
        client.start(connections[alias], Remind(number=4))
    assert told == [["remind"], ["reserve-stock"], ["remind"]]
    with transaction.atomic(using=alias):  # and the next transaction begins anew
        client.start(connections[alias], Remind(number=5))
    assert len(told) == 4


def test_a_block_without_a_savepoint_breaks_the_outer_one(alias: str, client: Client, told: list[list[str]]) -> None:
    with transaction.atomic(using=alias):
        client.start(connections[alias], Remind(number=1))
        with pytest.raises(ZeroDivisionError), transaction.atomic(using=alias, savepoint=False):
            raise ZeroDivisionError
        with pytest.raises(TransactionMisused, match="broken the atomic block"):
            client.start(connections[alias], Remind(number=2))
    assert (stored(alias, client), told) == ((0, 0), [])


def test_a_durable_block(alias: str, client: Client, told: list[list[str]]) -> None:
    with transaction.atomic(using=alias, durable=True):
        client.start(connections[alias], Remind(number=1))
    assert told == [["remind"]]


def test_an_error_of_ours_leaves_the_block_usable(alias: str, client: Client, told: list[list[str]]) -> None:
    with transaction.atomic(using=alias):
        chain = client.start(connections[alias], Remind(number=1))
        with pytest.raises(Exception, match="already exists"):
            client.start(connections[alias], Remind(number=2), id=chain.id)
        order(alias, 1)
    assert stored(alias, client) == (1, 1)


def test_all_mutations_take_the_connection(alias: str, client: Client) -> None:
    with transaction.atomic(using=alias):
        handle = connections[alias]
        first, second = client.start_many(handle, [Remind(number=1).set(after=3600), Remind(number=2)])
        client.trigger(handle, first)
        client.cancel(handle, second)
        with pytest.raises(ZeroDivisionError), client.savepoint(handle):
            client.delete(handle, second)
            raise ZeroDivisionError
        with client.take_over(handle, first, Remind) as current:
            current.settle(None)
        client.delete(handle, first)
    assert [chain.status for chain in client.list_chains().items] == ["cancelled"]


def test_transactions_of_the_clients_own_are_atomic_blocks(alias: str, client: Client, told: list[list[str]]) -> None:
    with client.transaction() as tx:
        assert tx.connection is connections[alias]
        assert tx.connection.in_atomic_block
        order(alias, 1)
        client.start(tx, Remind(number=1))
        get_client(alias).start(connections[alias], Remind(number=2))  # both ways, in one transaction
    with client.after_commit(connections[alias]) as tx, transaction.atomic(using=alias):
        client.start(tx, Remind(number=3))
    assert stored(alias, client) == (1, 3)
    assert len(told) == 2


# What is refused


def test_without_an_atomic_block(alias: str, client: Client) -> None:
    with pytest.raises(TransactionRequired, match=r"start\(\) needs a transaction: no transaction\.atomic\(\)"):
        client.start(connections[alias], Remind(number=1))
    with pytest.raises(TransactionMisused, match="no transaction"):
        client.get_chain("x", tx=connections[alias])
    nothing: Any = None
    with transaction.atomic(using=alias), pytest.raises(TransactionMisused, match="one of Django's connections"):
        client.start(nothing, Remind(number=1))


def test_with_autocommit_off(alias: str, client: Client) -> None:
    transaction.set_autocommit(False, using=alias)
    try:
        with pytest.raises(TransactionRequired, match="autocommit is off"):
            client.start(connections[alias], Remind(number=1))
    finally:
        transaction.rollback(using=alias)
        transaction.set_autocommit(True, using=alias)


def test_a_transaction_of_the_clients_own_inside_of_a_block(alias: str, client: Client) -> None:
    with transaction.atomic(using=alias):
        with pytest.raises(TransactionNested, match=r"client\.start\(connection"), client.transaction():
            pass
        with pytest.raises(TransactionNested, match="do it outside"):
            client.vacuum()
        with pytest.raises(TransactionNested, match=r"client\.start\(tx"):
            client.submit(Remind(number=1))
    assert client.get_chain(client.submit(Remind(number=2))) is not None


def test_a_connection_to_another_database(alias: str, client: Client, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with database("sqlite", other) as second, transaction.atomic(using=second), transaction.atomic(using=alias):
        with pytest.raises(TransactionMisused, match=f"to the database '{second}', but the jobs .* in '{alias}'"):
            client.start(connections[second], Remind(number=1))
        with pytest.raises(TransactionMisused, match="to the database 'default'"):
            client.start(connection, Remind(number=1))  # a stand-in for that of the default alias
        get_client(second).start(connections[second], Remind(number=1))
    with pytest.raises(InvalidArgument, match="is not in the setting QUEUERT: add it there"):
        get_client("nowhere")


def test_a_connection_of_another_thread(alias: str, client: Client) -> None:
    errors: list[str] = []

    def use(theirs: Any) -> None:
        try:
            client.start(theirs, Remind(number=1))
        except TransactionMisused as error:
            errors.append(str(error))

    with transaction.atomic(using=alias):
        thread = threading.Thread(target=use, args=(connections[alias],))
        thread.start()
        thread.join()
    assert len(errors) == 1
    assert "another thread" in errors[0]


def test_a_connection_that_was_closed(alias: str, client: Client) -> None:
    with transaction.atomic(using=alias):
        client.start(connections[alias], Remind(number=1))
        connections[alias].close()
        with pytest.raises(TransactionMisused, match="closed, or lost"):
            client.start(connections[alias], Remind(number=2))
    assert stored(alias, client) == (0, 0)
    with pytest.raises(TransactionMisused, match="closed, or lost"), client.transaction() as tx:
        tx.connection.close()  # type: ignore[attr-defined]
    assert stored(alias, client) == (0, 0)


def test_an_error_that_was_swallowed_is_not_committed_in_silence(alias: str, client: Client) -> None:
    with transaction.atomic(using=alias):
        order(alias, 1)
    with pytest.raises(TransactionMisused), client.transaction() as tx:
        client.start(tx, Remind(number=1))
        with pytest.raises(DatabaseError):
            order(alias, 1)  # the number is there already
    assert stored(alias, client) == (1, 0)


async def test_in_an_event_loop(alias: str, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TransactionMisused, match="sync_to_async"):
        client.start(connections[alias], Remind(number=1))
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    with pytest.raises(TransactionRequired):
        client.start(connections[alias], Remind(number=1))


def test_a_closed_client(alias: str, client: Client) -> None:
    client.close()
    with transaction.atomic(using=alias), pytest.raises(ClientClosed):
        client.start(connections[alias], Remind(number=1))
    with pytest.raises(ClientClosed), client.sessions.storage.provider.savepoint(connections[alias]):
        pass


def test_sqlite_without_immediate_transactions(tmp_path: Path) -> None:
    settings = sqlite_settings(tmp_path / "x.db", transaction_mode=None)
    with added(settings) as alias:
        client, _ = recording_client(alias)
        with transaction.atomic(using=alias), pytest.raises(StorageError, match="transaction_mode"):
            client.start(connections[alias], Remind(number=1))


def test_a_database_that_cannot_be_reached(tmp_path: Path) -> None:
    with added(sqlite_settings(tmp_path / "missing" / "x.db")) as alias:
        client, _ = recording_client(alias)
        with pytest.raises(StorageError, match="cannot be opened"):
            client.list_chains()
        with pytest.raises(StorageError, match="cannot be opened"), client.transaction():
            pass


# How Django runs things


def test_a_test_case_wraps_everything_and_captures_the_callbacks(alias: str, client: Client) -> None:
    from django.test import TestCase

    class Orders(TestCase):
        databases = {alias}  # noqa: RUF012

        def test_one(self) -> None:
            told = recording_client(alias)
            with self.captureOnCommitCallbacks(using=alias, execute=True) as callbacks, transaction.atomic(using=alias):
                order(alias, 1)
                told[0].start(connections[alias], Remind(number=1))
            assert (len(callbacks), told[1]) == (1, [["remind"]])
            with self.captureOnCommitCallbacks(using=alias, execute=True):
                told[0].start(connections[alias], Remind(number=2))  # the test's own block is open
            assert len(told[1]) == 2
            with told[0].transaction() as tx:
                told[0].start(tx, Remind(number=3))
            assert stored(alias, client) == (1, 3)

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Orders).run(result)
    assert [text for _, text in [*result.errors, *result.failures]] == []
    assert result.testsRun == 1
    assert stored(alias, client) == (0, 0)


@pytest.mark.parametrize("path", ["orders", "async"])
def test_requests(kind: str, tmp_path: Path, path: str) -> None:
    from django.test import AsyncClient
    from django.test import Client as TestClient

    with database(kind, tmp_path, ATOMIC_REQUESTS=path == "orders") as alias:
        client = get_client(alias)
        if path == "orders":
            browser = TestClient()
            assert client.get_chain(browser.post(f"/orders/{alias}/1").json()["chain"]) is not None
            with pytest.raises(ValueError, match="after the job"):
                browser.post(f"/orders/{alias}/2?fail")
        else:

            async def visit() -> None:
                await AsyncClient().post(f"/async/{alias}/1")
                with pytest.raises(ValueError, match="after the job"):
                    await AsyncClient().post(f"/async/{alias}/2?fail")

            asyncio.run(visit())
        assert stored(alias, client) == (1, 1)


@pytest.mark.parametrize("pool", [False, True])
def test_persistent_and_pooled_connections(tmp_path: Path, pool: bool) -> None:
    from django.db import close_old_connections

    with database("postgres", tmp_path, CONN_MAX_AGE=0 if pool else None, CONN_HEALTH_CHECKS=True) as alias:
        if pool:
            connections[alias].close()
            connections[alias].settings_dict["OPTIONS"]["pool"] = {"min_size": 1, "max_size": 2}
        client, told = recording_client(alias)
        for number in range(3):
            close_old_connections()  # what Django does before and after a request
            with transaction.atomic(using=alias):
                client.start(connections[alias], Remind(number=number))
            close_old_connections()
        assert stored(alias, client) == (0, 3)
        assert len(told) == 3
        connections[alias].close()
        if pool:
            connections[alias].close_pool()
