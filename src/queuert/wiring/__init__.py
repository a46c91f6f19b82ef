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
    """A client for the database at `url`, to be used in an `async with` block.

    `postgresql://user@host/database` is PostgreSQL through psycopg, or asyncpg if that is what is installed;
    `postgresql+psycopg://` and `postgresql+asyncpg://` choose.
    `sqlite:///jobs.db` is a file in the current directory, `sqlite:////var/lib/app/jobs.db` one with an absolute path,
    `sqlite+aiosqlite:///jobs.db` the same with connections of aiosqlite;
    `memory://` is a database of its own, `memory://name` one that all clients of this process with that name share.
    `notify="redis://host"` has workers and waiters woken through Redis, whatever the database.
    `jobs` are job classes, `JobTypes` slices or modules; what they continue with or wait for is pulled in.
    """
    scheme = _scheme(url, options)
    database = postgres if scheme in postgres.SCHEMES else embedded
    settings = client_options(options)
    registry = Registry(jobs, codecs=options.get("codecs", ()))
    channel = brokers.broker(options)
    state, notify = database.parts(url, brokers.without(channel, options))
    return Client(state, channel or notify, registry, **settings)


def connect_sync(url: str, *, jobs: Iterable[JobsItem], **options: Unpack[ClientOptions]) -> SyncClient[Any]:
    """`connect` for code without an event loop; use the client in a `with` block. It may be shared by threads."""
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
            "a database URL is a string like 'postgresql://host/database' or 'sqlite:///file.db', "
            f"got {type(url).__name__}"
        )
    scheme = url.partition(":")[0]
    if scheme not in (*postgres.SCHEMES, *embedded.SCHEMES):
        raise InvalidArgument(
            f"{url!r} is no database URL: use postgresql://user@host/database, sqlite:///file.db, "
            "sqlite:////absolute/file.db or memory://"
        )
    return scheme
