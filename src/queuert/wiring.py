"""`connect` and `connect_sync`: from a URL to a client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Literal, TypedDict
from urllib.parse import unquote, urlsplit
from weakref import WeakValueDictionary

from typing_extensions import Unpack

from queuert.adapters.in_process import (
    InProcessHub,
    InProcessNotify,
    NoNotify,
    SyncInProcessNotify,
    SyncNoNotify,
)
from queuert.adapters.memory import MemoryStore, memory_state, sync_memory_state
from queuert.adapters.sqlite import sqlite_state, sync_sqlite_state
from queuert.client.client import Client
from queuert.client.sync_client import SyncClient
from queuert.errors import InvalidArgument
from queuert.ids import GenerateId, ValidateId, generate_uuid7, validate_uuid
from queuert.jobs.codec import Codec
from queuert.jobs.registry import JobsItem, Registry
from queuert.model import Duration, seconds


class ClientOptions(TypedDict, total=False):
    """The keywords of `connect` and `connect_sync` that every database takes."""

    codecs: Sequence[Codec]
    """For types that msgspec does not know (see `Codec`)."""
    notify: Literal["in-process"] | None
    """How workers and waiters are woken early (default: within this process). None: they only poll."""
    poll_interval: Duration
    """How often `wait` looks for itself, in case a notification was lost (default: 1 s)."""
    migrate: bool
    """Bring the schema up to date when the client is entered (default: yes)."""
    table_prefix: str
    """What the tables' names begin with (default: `queuert_`)."""
    busy_timeout: Duration
    """SQLite: how long to wait for the write lock (default: 5 s)."""
    generate_id: GenerateId
    validate_id: ValidateId


def connect(url: str, *, jobs: Iterable[JobsItem], **options: Unpack[ClientOptions]) -> Client[Any]:
    """A client for the database at `url`, to be used in an `async with` block.

    `sqlite:///jobs.db` is a file in the current directory, `sqlite:////var/lib/app/jobs.db` one with an absolute path;
    `memory://` is a database of its own, `memory://name` one that all clients of this process with that name share.
    `jobs` are job classes, `JobTypes` slices or modules; what they continue with or wait for is pulled in.
    """
    target = _Target(url, options)
    if target.path is None:
        state: Any = memory_state(target.store)
    else:
        state = sqlite_state(target.path, table_prefix=target.table_prefix, busy_timeout=target.busy_timeout)
    notify = NoNotify() if target.hub is None else InProcessNotify(target.hub)
    return Client(state, notify, Registry(jobs, codecs=options.get("codecs", ())), **target.client_options)


def connect_sync(url: str, *, jobs: Iterable[JobsItem], **options: Unpack[ClientOptions]) -> SyncClient[Any]:
    """`connect` for code without an event loop; use the client in a `with` block. It may be shared by threads."""
    target = _Target(url, options)
    if target.path is None:
        state: Any = sync_memory_state(target.store)
    else:
        state = sync_sqlite_state(target.path, table_prefix=target.table_prefix, busy_timeout=target.busy_timeout)
    notify = SyncNoNotify() if target.hub is None else SyncInProcessNotify(target.hub)
    return SyncClient(state, notify, Registry(jobs, codecs=options.get("codecs", ())), **target.client_options)


# Clients of one database in one process share these, for as long as one of them is in use.
_sharing = Lock()
_hubs: WeakValueDictionary[str, InProcessHub] = WeakValueDictionary()
_stores: WeakValueDictionary[str, MemoryStore] = WeakValueDictionary()


class _Target:
    """A URL and the options that go with it, checked and taken apart."""

    def __init__(self, url: str, options: ClientOptions) -> None:
        unknown = sorted(set(options) - ClientOptions.__annotations__.keys())
        if unknown:
            raise InvalidArgument(f"connect() has no option {', '.join(unknown)}")
        if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(f"a database URL is a string like 'sqlite:///file.db', got {type(url).__name__}")
        parts = urlsplit(url)
        self.path: Path | None = None
        self.store: MemoryStore | None = None
        if parts.scheme == "memory":
            shared = parts.netloc + parts.path
            self.store = _shared(_stores, shared, MemoryStore) if shared else MemoryStore()
            key = url
        elif parts.scheme == "sqlite":
            self.path = _sqlite_path(url)
            shared = key = str(self.path.absolute())
        else:
            raise InvalidArgument(
                f"{url!r} is no database URL: use sqlite:///file.db, sqlite:////absolute/file.db or memory://"
            )
        self.table_prefix = options.get("table_prefix", "queuert_")
        self.busy_timeout = seconds(options.get("busy_timeout", 5.0), "busy_timeout")
        notify = options.get("notify", "in-process")
        if notify not in ("in-process", None):
            raise InvalidArgument(f"notify must be 'in-process' or None, got {notify!r}")
        self.hub: InProcessHub | None = None
        if notify is not None:
            self.hub = _shared(_hubs, f"{key}#{self.table_prefix}", InProcessHub) if shared else InProcessHub()
        self.client_options: dict[str, Any] = {
            "generate_id": options.get("generate_id", generate_uuid7),
            "validate_id": options.get("validate_id", validate_uuid),
            "poll_interval": seconds(options.get("poll_interval", 1.0), "poll_interval", minimum=0.001),
            "migrate": options.get("migrate", True),
        }


def _sqlite_path(url: str) -> Path:
    # sqlite:///relative and sqlite:////absolute, as SQLAlchemy writes them.
    prefix, _, path = url.partition("sqlite:///")
    if prefix or not path or path.startswith(":memory:"):
        raise InvalidArgument(
            f"{url!r} names no database file: use sqlite:///file.db or sqlite:////absolute/file.db "
            "(for a database in memory, memory://)"
        )
    if "?" in path or "#" in path:
        raise InvalidArgument(
            f"{url!r}: options are keywords of connect(), not part of the URL "
            "(in a file's name, write ? as %3F and # as %23)"
        )
    return Path(unquote(path))


def _shared(known: WeakValueDictionary[str, Any], key: str, make: Any) -> Any:
    with _sharing:
        found = known.get(key)
        if found is None:
            found = known[key] = make()
        return found
