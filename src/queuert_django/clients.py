"""Clients made from Django's settings: the sync client for views and commands, and the worker's
client.
"""

from __future__ import annotations

from os import getpid
from threading import Lock
from typing import Any, cast

from django.db import connections

from queuert import Client, SyncClient
from queuert.adapters.broadcast import BroadcastNotify
from queuert.adapters.django.connection import DjangoConnection, Wrapper
from queuert.adapters.django.databases import kind_of
from queuert.adapters.django.provider import DjangoProvider
from queuert.adapters.in_process import InProcessHub
from queuert.errors import InvalidArgument
from queuert.ports.notify import NotifyAdapter
from queuert.ports.state import StateAdapter, StateOperations, SyncStateAdapter
from queuert.ports.sync_notify import SyncNotify
from queuert.wiring.embedded import sqlite_hub
from queuert.wiring.options import hub_for, within_process
from queuert_django.discovery import find_jobs
from queuert_django.options import options_of

_clients: dict[tuple[int, str, str], SyncClient[DjangoConnection]] = {}
"""By process, too: a forked child cannot use a client that its parent has used."""
_making = Lock()

_NOT_LIBPQ = ("context", "cursor_factory", "prepare_threshold", "client_encoding")


def get_client(using: str = "default") -> SyncClient[DjangoConnection]:
    """The client for a database of this project, with the jobs of all apps.

    Call it where you need it: the client is cached. In a `transaction.atomic()` block, pass the
    connection as the transaction: `client.start(connection, …)`.

    Args:
        using: The alias of the database in DATABASES (default: "default").
    """
    options_of(using)
    key = (getpid(), using, str(_wrapper(using).settings_dict["NAME"]))  # a test database has its own client
    with _making:
        client = _clients.get(key)
        if client is None:
            provider = DjangoProvider(using)
            state = SyncStateAdapter(operations_for(using), provider)
            client = SyncClient(state, _sync_notify(using, provider), find_jobs(), migrate=False)
            client.sessions.open()  # its connections are Django's, so there is nothing to close
            _clients[key] = client
    return client


def worker_client(using: str) -> Client[Any]:
    """A client for a worker.

    The worker's own statements use their own connections. Plain `def` handlers use Django's.
    """
    wrapper = _wrapper(using)
    kind_of(wrapper).check_settings(wrapper)
    options = options_of(using)
    sync: Any = DjangoProvider(using)
    provider: Any
    notify: NotifyAdapter
    if wrapper.vendor == "postgresql":
        from queuert.adapters.postgres.drivers.psycopg import PsycopgProvider

        provider = PsycopgProvider(conninfo(wrapper), prepare=options.get("prepare", True))
        notify = _postgres_notify(using, provider)
    else:
        from queuert.adapters.sqlite.connections.database import Database
        from queuert.adapters.sqlite.drivers.threaded import AsyncSqliteProvider

        timeout = wrapper.settings_dict["OPTIONS"].get("timeout", 5.0)
        provider = AsyncSqliteProvider(Database(database_file(wrapper), timeout))
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
    """Django's connection settings in the form that psycopg accepts."""
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


def _sync_notify(using: str, provider: DjangoProvider) -> NotifyAdapter | SyncNotify:
    if _wrapper(using).vendor == "postgresql":
        from queuert_django.announcing import DjangoNotify

        return DjangoNotify(provider, _postgres_notify(using, provider))
    return within_process(_hub(using))


def _postgres_notify(using: str, provider: Any) -> BroadcastNotify:
    from queuert.adapters.postgres.adapter import psycopg_notify

    options = options_of(using)
    schema, prefix = options.get("schema", "public"), options.get("table_prefix", "queuert_")
    return psycopg_notify(provider, listen_url=_listen_url(using), schema=schema, table_prefix=prefix)


def _listen_url(using: str) -> str:
    return options_of(using).get("listen_url") or conninfo(_wrapper(using))


def _hub(using: str) -> InProcessHub:
    """The hub of a file also reports the commits of other processes."""
    prefix = options_of(using).get("table_prefix", "queuert_")
    name = str(_wrapper(using).settings_dict["NAME"])
    return sqlite_hub(name, prefix) if _is_file(name) else hub_for(f"{name}#{prefix}")


def database_file(wrapper: Wrapper) -> str:
    name = str(wrapper.settings_dict["NAME"])
    if not _is_file(name):
        raise InvalidArgument(
            f"a worker cannot use the database {wrapper.alias!r}, because {name!r} is not a file: "
            "set NAME to the path of a file"
        )
    return name


def _is_file(name: str) -> bool:
    return name != ":memory:" and not name.startswith("file:")


def _wrapper(using: str) -> Wrapper:
    return cast(Wrapper, connections[using])
