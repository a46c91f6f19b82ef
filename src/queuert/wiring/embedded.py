"""Databases without a server: SQLite files, and memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from weakref import WeakValueDictionary

from queuert.adapters.in_process import InProcessHub
from queuert.adapters.memory import MemoryStore, memory_state, sync_memory_state
from queuert.adapters.sqlite import SqliteHub, aiosqlite_state, sqlite_state, sync_sqlite_state
from queuert.errors import InvalidArgument
from queuert.model import seconds
from queuert.ports.notify import NotifyAdapter
from queuert.ports.state import StateAdapter, SyncStateAdapter
from queuert.wiring.options import (
    POSTGRES_ONLY,
    ClientOptions,
    channel_name,
    hub_for,
    need,
    refuse,
    shared,
    within_process,
)

SCHEMES = ("sqlite", "sqlite+aiosqlite", "memory")

_stores: WeakValueDictionary[str, MemoryStore] = WeakValueDictionary()
_sqlite_hubs: WeakValueDictionary[str, SqliteHub] = WeakValueDictionary()


def parts(url: str, options: ClientOptions) -> tuple[StateAdapter[Any], NotifyAdapter]:
    target = _Target(url, options)
    if target.path is None:
        state: Any = memory_state(target.store)
    else:
        if target.aiosqlite:
            need("aiosqlite", "aiosqlite")
        make: Any = aiosqlite_state if target.aiosqlite else sqlite_state
        state = make(target.path, **target.tables)
    return state, within_process(target.hub)


def sync_parts(url: str, options: ClientOptions) -> tuple[SyncStateAdapter[Any], NotifyAdapter]:
    target = _Target(url, options)
    if target.path is None:
        state: Any = sync_memory_state(target.store)
    elif target.aiosqlite:
        raise InvalidArgument("aiosqlite has no sync connections: use sqlite:///file.db with connect_sync()")
    else:
        state = sync_sqlite_state(target.path, **target.tables)
    return state, within_process(target.hub)


def sqlite_hub(path: str, prefix: str) -> SqliteHub:
    """The hub that all clients of these tables share in this process."""
    return shared(_sqlite_hubs, f"{Path(path).absolute()}#{prefix}", lambda: SqliteHub(path))


class _Target:
    """A URL and its options, checked and split into parts."""

    def __init__(self, url: str, options: ClientOptions) -> None:
        refuse(options, POSTGRES_ONLY, "is for PostgreSQL")
        location = urlsplit(url)
        self.aiosqlite = location.scheme == "sqlite+aiosqlite"
        self.path: Path | None = None
        self.store: MemoryStore | None = None
        key: str | None = None
        if location.scheme == "memory":
            if location.netloc + location.path:
                key = url
                self.store = shared(_stores, location.netloc + location.path, MemoryStore)
            else:
                self.store = MemoryStore()
        else:
            self.path = _sqlite_path(url.replace("sqlite+aiosqlite:", "sqlite:", 1))
            key = str(self.path.absolute())
        prefix = options.get("table_prefix", "queuert_")
        busy_timeout = seconds(options.get("busy_timeout", 5.0), "busy_timeout")
        notify = channel_name(options, *(["in-process"] if self.path is None else ["sqlite", "in-process"]))
        self.hub: InProcessHub | None = None
        watched: SqliteHub | None = None
        if notify == "sqlite":
            self.hub = watched = sqlite_hub(str(self.path), prefix)
        elif notify is not None:
            self.hub = hub_for(None if key is None else f"{key}#{prefix}")
        self.tables: dict[str, Any] = {"table_prefix": prefix, "busy_timeout": busy_timeout, "hub": watched}


def _sqlite_path(url: str) -> Path:
    # sqlite:///relative and sqlite:////absolute, as SQLAlchemy writes them.
    prefix, _, path = url.partition("sqlite:///")
    if prefix or not path or path.startswith(":memory:"):
        raise InvalidArgument(
            f"{url!r} does not name a database file: use sqlite:///file.db or sqlite:////absolute/file.db "
            "(or memory:// for a database in memory)"
        )
    if "?" in path or "#" in path:
        raise InvalidArgument(
            f"{url!r} has options: pass them as keywords of connect(). (In a file name, write ? as %3F and # as %23.)"
        )
    return Path(unquote(path))
