"""Clients, made from Django's settings: the sync one of views and commands, and the worker's."""

from __future__ import annotations

from threading import Lock
from typing import Any, cast

from django.db import connections

from queuert import Client, SyncClient
from queuert.adapters.django.connection import DjangoConnection, Wrapper
from queuert.adapters.django.databases import kind_of
from queuert.adapters.django.provider import DjangoProvider
from queuert.adapters.in_process import InProcessHub
from queuert.errors import InvalidArgument
from queuert.ports.notify import NotifyAdapter, SyncNotifyAdapter
from queuert.ports.state import StateAdapter, StateOperations, SyncStateAdapter
from queuert.wiring.embedded import sqlite_hub
from queuert.wiring.options import hub_for, sync_within_process, within_process
from queuert_django.discovery import find_jobs
from queuert_django.options import options_of

_clients: dict[tuple[str, str], SyncClient[DjangoConnection]] = {}
_making = Lock()

_NOT_LIBPQ = ("context", "cursor_factory", "prepare_threshold", "client_encoding")


def get_client(using: str = "default") -> SyncClient[DjangoConnection]:
    """The client for a database of this project, with the jobs of all apps. Call it where you need it: it is kept.

    In a `transaction.atomic()` block the connection is the transaction: `client.start(connection, …)`.
    """
    options_of(using)
    key = (using, str(_wrapper(using).settings_dict["NAME"]))  # a test database is another one
    with _making:
        client = _clients.get(key)
        if client is None:
            provider = DjangoProvider(using)
            state = SyncStateAdapter(operations_for(using), provider)
            client = SyncClient(state, _sync_notify(using, provider), find_jobs(), migrate=False)
            _clients[key] = client
    return client


def worker_client(using: str) -> Client[Any]:
    """A client for a worker: its own statements on connections of its own, plain `def` handlers on Django's."""
    wrapper = _wrapper(using)
    kind_of(wrapper).check_settings(wrapper)
    options = options_of(using)
    sync: Any = DjangoProvider(using)
    provider: Any
    notify: NotifyAdapter
    if wrapper.vendor == "postgresql":
        from queuert.adapters.postgres.drivers.psycopg_provider import PsycopgProvider
        from queuert.adapters.postgres.notify.adapter import PostgresNotify
        from queuert.adapters.postgres.notify.psycopg import psycopg_link

        provider = PsycopgProvider(conninfo(wrapper), prepare=options.get("prepare", True))
        channels = _channels(using)
        notify = PostgresNotify(provider, psycopg_link(_listen_url(using), channels), channels)
    else:
        from queuert.adapters.sqlite.async_provider import AsyncSqliteProvider
        from queuert.adapters.sqlite.connecting import Database

        timeout = wrapper.settings_dict["OPTIONS"].get("timeout", 5.0)
        provider = AsyncSqliteProvider(Database(_file(wrapper), timeout))
        notify = within_process(_hub(using))
    return Client(StateAdapter(operations_for(using), provider, sync), notify, find_jobs(), migrate=False)


def operations_for(using: str) -> StateOperations:
    options = options_of(using)
    prefix = options.get("table_prefix", "queuert_")
    wrapper = _wrapper(using)
    kind_of(wrapper)
    if wrapper.vendor == "postgresql":
        from queuert.adapters.postgres.operations import PostgresOperations

        return PostgresOperations(options.get("schema", "public"), prefix)
    from queuert.adapters.sqlite.operations import SqliteOperations

    return SqliteOperations(prefix)


def conninfo(wrapper: Wrapper) -> str:
    """What Django would connect to, as psycopg takes it."""
    from psycopg.conninfo import make_conninfo

    parameters: dict[str, Any] = {
        name: value
        for name, value in wrapper.get_connection_params().items()
        if name not in _NOT_LIBPQ and isinstance(value, str | int)
    }
    role = wrapper.settings_dict["OPTIONS"].get("assume_role")
    if role:
        parameters["options"] = f"{parameters.get('options', '')} -c role={role}".strip()
    return make_conninfo(**parameters)


def _sync_notify(using: str, provider: DjangoProvider) -> SyncNotifyAdapter:
    if _wrapper(using).vendor == "postgresql":
        from queuert_django.announcing import DjangoNotify

        return DjangoNotify(provider, _listen_url(using), _channels(using))
    return sync_within_process(_hub(using))


def _channels(using: str) -> Any:
    from queuert.adapters.postgres.notify.channels import Channels, default_prefix

    options = options_of(using)
    return Channels(default_prefix(options.get("schema", "public"), options.get("table_prefix", "queuert_")))


def _listen_url(using: str) -> str:
    return options_of(using).get("listen_url") or conninfo(_wrapper(using))


def _hub(using: str) -> InProcessHub:
    """A file's hub hears of other processes, too."""
    prefix = options_of(using).get("table_prefix", "queuert_")
    name = str(_wrapper(using).settings_dict["NAME"])
    return sqlite_hub(name, prefix) if _is_file(name) else hub_for(f"{name}#{prefix}")


def _file(wrapper: Wrapper) -> str:
    name = str(wrapper.settings_dict["NAME"])
    if not _is_file(name):
        raise InvalidArgument(f"a worker needs the database {wrapper.alias!r} to be a file, not {name!r}")
    return name


def _is_file(name: str) -> bool:
    return name != ":memory:" and not name.startswith("file:")


def _wrapper(using: str) -> Wrapper:
    return cast(Wrapper, connections[using])
