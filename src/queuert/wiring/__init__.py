"""`connect` and `connect_sync`: from a URL to a client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from typing_extensions import Unpack

from queuert.client.client import Client
from queuert.client.sync_client import SyncClient
from queuert.errors import InvalidArgument
from queuert.jobs.registry import JobsItem, Registry
from queuert.wiring import brokers, embedded, postgres
from queuert.wiring.options import ClientOptions, check_names, client_options

__all__ = ["ClientOptions", "connect", "connect_sync"]


def connect(url: str, *, jobs: Iterable[JobsItem], **options: Unpack[ClientOptions]) -> Client[Any]:
    """A client for the database at `url`. Use it in an `async with` block.

    - `postgresql://user@host/database`: PostgreSQL through psycopg, or through asyncpg if psycopg
      is not installed. `postgresql+psycopg://` and `postgresql+asyncpg://` choose the driver.
    - `sqlite:///jobs.db`: a file in the current directory.
    - `sqlite:////var/lib/app/jobs.db`: a file with an absolute path.
    - `sqlite+aiosqlite:///jobs.db`: the same, with connections of aiosqlite.
    - `memory://`: a new database in memory. `memory://name`: one that all clients of this process
      with that name share.

    `jobs` takes job classes, `JobTypes` and modules. The types that they continue with or wait for
    are added automatically. `notify="redis://host"` wakes workers and `wait` calls through Redis,
    with any database. See `ClientOptions` for the other keywords.
    """
    scheme = _scheme(url, options)
    database = postgres if scheme in postgres.SCHEMES else embedded
    settings = client_options(options)
    registry = Registry(jobs, codecs=options.get("codecs", ()))
    channel = brokers.broker(options)
    state, notify = database.parts(url, brokers.without(channel, options))
    return Client(state, channel or notify, registry, **settings)


def connect_sync(url: str, *, jobs: Iterable[JobsItem], **options: Unpack[ClientOptions]) -> SyncClient[Any]:
    """`connect` for code without an event loop. Use the client in a `with` block.

    Threads may share the client.
    """
    scheme = _scheme(url, options)
    database = postgres if scheme in postgres.SCHEMES else embedded
    settings = client_options(options)
    registry = Registry(jobs, codecs=options.get("codecs", ()))
    channel = brokers.sync_broker(options)
    state, notify = database.sync_parts(url, brokers.without(channel, options))
    return SyncClient(state, channel or notify, registry, **settings)


def _scheme(url: str, options: ClientOptions) -> str:
    check_names(options)
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(
            "the database URL must be a string like 'postgresql://host/database' or 'sqlite:///file.db', "
            f"got {type(url).__name__}"
        )
    scheme, _, rest = url.partition(":")
    if scheme not in (*postgres.SCHEMES, *embedded.SCHEMES):
        # The rest of the URL is not shown, because it may contain a password.
        shown = f"{scheme}:…" if rest else url
        raise InvalidArgument(
            f"{shown!r} is not a supported database URL: use postgresql://user@host/database, sqlite:///file.db, "
            "sqlite:////absolute/file.db or memory://"
        )
    return scheme
