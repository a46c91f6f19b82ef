"""Databases of a Django project that cannot be used, or have other encodings than UTF-8."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.db import connections, transaction
from tests.django.conftest import recording_client
from tests.support.django import added, postgres_settings
from tests.support.jobs import Greet
from tests.support.postgres import server

from queuert import StorageError, StorageUnavailable, SyncClient
from queuert.adapters.django import DjangoProvider
from queuert.adapters.in_process import NoNotify
from queuert.ports.state import SyncStateAdapter
from queuert_django.clients import operations_for

TEXT = "Zoë costs 5 € 😀"


def test_a_database_without_an_encoding() -> None:
    with server().encoded("SQL_ASCII") as url, added(postgres_settings(url)) as alias:
        call_command("migrate", database=alias, verbosity=0)
        client = SyncClient(SyncStateAdapter(operations_for(alias), DjangoProvider(alias)), NoNotify(), [Greet])
        with client:
            with transaction.atomic(using=alias):
                chain = client.start(connections[alias], Greet(who=TEXT))
            job = client.get_job(chain.id, Greet)
            assert job is not None
            assert job.job.who == TEXT


def test_a_database_that_does_not_exist() -> None:
    with added(postgres_settings(server().url_of("nowhere"))) as alias:
        client, _ = recording_client(alias)
        with client, pytest.raises(StorageError, match=r'rejected the connection: .* "nowhere" does not') as caught:
            client.stats()
        assert not isinstance(caught.value, StorageUnavailable)


def test_a_database_that_cannot_hold_every_text_is_refused() -> None:
    with server().encoded("LATIN1") as url, added(postgres_settings(url)) as alias:
        with pytest.raises(StorageError, match="the encoding of this database is LATIN1"):
            call_command("migrate", database=alias, verbosity=0)
        client, _ = recording_client(alias)
        with client, pytest.raises(StorageError, match="the encoding of this database is LATIN1"):
            client.stats()
