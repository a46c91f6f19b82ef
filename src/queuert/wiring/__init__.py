"""`connect` and `connect_sync`: from a URL to a client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from typing_extensions import Unpack

from queuert.client.client import Client
from queuert.client.sync_client import SyncClient
from queuert.errors import InvalidArgument
from queuert.jobs.registry import JobsItem, Registry
from queuert.ports.notify import NotifyAdapter
from queuert.wiring import brokers
from queuert.wiring.options import ClientOptions, check_names, client_options
from queuert.wiring.urls import EMBEDDED, POSTGRES

__all__ = ["ClientOptions", "connect", "connect_sync"]


def connect(url: str, *, jobs: Iterable[JobsItem], **options: Unpack[ClientOptions]) -> Client[Any]:
    """A client for the database at `url`. Use it in an `async with` block.

    Raises `DriverMissing` if the driver for the URL is not installed.

    Args:
        url: The database.
            "postgresql://user@host/database" is PostgreSQL, through psycopg or, if that is not
            installed, asyncpg. "postgresql+psycopg://…" and "postgresql+asyncpg://…" choose one.
            "sqlite:///jobs.db" is a file in the current directory, "sqlite:////srv/jobs.db" an
            absolute path, "sqlite+aiosqlite:///jobs.db" a file through aiosqlite.
            "memory://" is a new database in memory. "memory://name" is shared by all clients of
            this process that use the name.
        jobs: Job classes, `JobTypes`, or modules that define job classes. The types that these
            continue with or wait for are included.
        codecs: Codecs for types that msgspec does not know (default: none).
        notify: How workers and waiters are woken early. "postgres" or "sqlite" uses that database
            (the default there). "in-process" reaches only this process (the default for memory://).
            A URL uses a broker: redis://host, nats://host or postgresql://host/database. A
            `NotifyProvider`, or a function that makes one, uses a broker of your own. None turns
            notifications off: everything polls.
        notify_prefix: Brokers: the prefix of channels and keys (default: "queuert"). Databases that
            share a broker need different prefixes.
        notify_bucket: NATS: the JetStream key-value bucket for wake hints. It is created if it does
            not exist (default: no wake hints).
        poll_interval: How often `wait` reads the chain if no notification arrives, as a timedelta
            or in seconds (default: 1).
        migrate: Create or update the tables when the `with` block begins (default: True).
        table_prefix: The prefix of table names (default: "queuert_").
        busy_timeout: SQLite: how long to wait for the write lock, as a timedelta or in seconds
            (default: 5).
        schema: PostgreSQL: the schema of the tables (default: "public").
        listen_url: PostgreSQL: a direct URL for LISTEN, if `url` leads to PgBouncer.
        prepare: PostgreSQL: use prepared statements (default: True). Set it to False for PgBouncer
            in transaction mode.
        pool_size: PostgreSQL: how many connections the client's pool may open (default: 10). Set it
            to the number of handlers that use the database at once, plus 3.
        clock: For tests: a `queuert.testing.Clock`, which the time of the database then follows
            (default: the real time). It needs tables of its own, by `table_prefix`, `schema`, or a
            new file. Tables that were made without a clock are refused.
        observers: Objects that receive events: see `Observer` (default: none).
        keep: How long ended chains are kept if their class sets no time: see `Keep` (default:
            completed ones 7 days, others 90 days).
        announce: "background" (the default) notifies workers without the caller that has committed.
            "wait" lets it wait until that is done.
        statistics: Count what happens to jobs, for `client.history` (default: True). Set it to the
            same in all processes.
        generate_id: Makes job ids (default: UUIDv7). Ids should increase with time, because
            listings are sorted by id.
        validate_id: Returns False or raises `InvalidJobId` for an id that it does not accept
            (default: any UUID). Generated ids are checked, too.
    """
    database, channel, registry, settings = _checked(url, jobs, options)
    state, notify = database.parts(url, brokers.without(channel, options))
    return Client(state, channel or notify, registry, **settings)


def connect_sync(url: str, *, jobs: Iterable[JobsItem], **options: Unpack[ClientOptions]) -> SyncClient[Any]:
    """A client for code without an event loop. Use it in a `with` block. Threads may share it.

    Raises `DriverMissing` if the driver for the URL is not installed.

    Args:
        url: The database.
            "postgresql://user@host/database" is PostgreSQL, through psycopg.
            "sqlite:///jobs.db" is a file in the current directory, "sqlite:////srv/jobs.db" an
            absolute path.
            "memory://" is a new database in memory. "memory://name" is shared by all clients of
            this process that use the name.
        jobs: Job classes, `JobTypes`, or modules that define job classes. The types that these
            continue with or wait for are included.
        codecs: Codecs for types that msgspec does not know (default: none).
        notify: How workers and waiters are woken early. "postgres" or "sqlite" uses that database
            (the default there). "in-process" reaches only this process (the default for memory://).
            A URL uses a broker: redis://host, nats://host or postgresql://host/database. A
            `NotifyProvider`, or a function that makes one, uses a broker of your own. None turns
            notifications off: everything polls.
        notify_prefix: Brokers: the prefix of channels and keys (default: "queuert"). Databases that
            share a broker need different prefixes.
        notify_bucket: NATS: the JetStream key-value bucket for wake hints. It is created if it does
            not exist (default: no wake hints).
        poll_interval: How often `wait` reads the chain if no notification arrives, as a timedelta
            or in seconds (default: 1).
        migrate: Create or update the tables when the `with` block begins (default: True).
        table_prefix: The prefix of table names (default: "queuert_").
        busy_timeout: SQLite: how long to wait for the write lock, as a timedelta or in seconds
            (default: 5).
        schema: PostgreSQL: the schema of the tables (default: "public").
        listen_url: PostgreSQL: a direct URL for LISTEN, if `url` leads to PgBouncer.
        prepare: PostgreSQL: use prepared statements (default: True). Set it to False for PgBouncer
            in transaction mode.
        pool_size: PostgreSQL: how many connections the client's pool may open (default: 10). Set it
            to the number of handlers that use the database at once, plus 3.
        clock: For tests: a `queuert.testing.Clock`, which the time of the database then follows
            (default: the real time). It needs tables of its own, by `table_prefix`, `schema`, or a
            new file. Tables that were made without a clock are refused.
        observers: Objects that receive events: see `Observer` (default: none).
        keep: How long ended chains are kept if their class sets no time: see `Keep` (default:
            completed ones 7 days, others 90 days).
        announce: "background" (the default) notifies workers without the caller that has committed.
            "wait" lets it wait until that is done.
        statistics: Count what happens to jobs, for `client.history` (default: True). Set it to the
            same in all processes.
        generate_id: Makes job ids (default: UUIDv7). Ids should increase with time, because
            listings are sorted by id.
        validate_id: Returns False or raises `InvalidJobId` for an id that it does not accept
            (default: any UUID). Generated ids are checked, too.
    """
    database, channel, registry, settings = _checked(url, jobs, options)
    state, notify = database.sync_parts(url, brokers.without(channel, options))
    return SyncClient(state, channel or notify, registry, **settings)


def _checked(
    url: str, jobs: Iterable[JobsItem], options: ClientOptions
) -> tuple[Any, NotifyAdapter | None, Registry, dict[str, Any]]:
    database: Any
    if _scheme(url, options) in POSTGRES:
        from queuert.wiring import postgres as database
    else:
        from queuert.wiring import embedded as database
    settings = client_options(options)
    registry = Registry(jobs, codecs=options.get("codecs", ()), keep=options.get("keep"))
    return database, brokers.broker(options), registry, settings


def _scheme(url: str, options: ClientOptions) -> str:
    check_names(options)
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(
            "the database URL must be a string like 'postgresql://host/database' or 'sqlite:///file.db', "
            f"got {type(url).__name__}"
        )
    scheme, _, rest = url.partition(":")
    if scheme not in (*POSTGRES, *EMBEDDED):
        if "=" in scheme:
            raise InvalidArgument(
                "the settings of a connection (host=… dbname=…) are not a URL: write postgresql://user@host/database"
            )
        # The rest of the URL is not shown, because it may contain a password.
        shown = f"{scheme}:…" if rest else url
        raise InvalidArgument(
            f"{shown!r} is not a supported database URL: use postgresql://user@host/database, sqlite:///file.db, "
            "sqlite:////absolute/file.db or memory://"
        )
    return scheme
