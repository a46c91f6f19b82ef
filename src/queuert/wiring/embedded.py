"""Databases without a server: SQLite files, and memory. Adapters are imported when used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from queuert.base.arguments import seconds
from queuert.errors import InvalidArgument
from queuert.ports.notify import NotifyAdapter
from queuert.ports.state import StateAdapter, SyncStateAdapter
from queuert.wiring.options import (
    POSTGRES_ONLY,
    ClientOptions,
    channel_name,
    clock_of,
    hub_for,
    need,
    refuse,
    shared,
    within_process,
)
from queuert.wiring.urls import sqlite_file

if TYPE_CHECKING:
    from queuert.adapters.in_process import InProcessHub
    from queuert.adapters.memory import MemoryStore
    from queuert.adapters.sqlite import SqliteHub

_stores: WeakValueDictionary[str, MemoryStore] = WeakValueDictionary()
_sqlite_hubs: WeakValueDictionary[str, SqliteHub] = WeakValueDictionary()


def parts(url: str, options: ClientOptions) -> tuple[StateAdapter[Any], NotifyAdapter]:
    target = _Target(url, options)
    if target.path is None:
        from queuert.adapters.memory import memory_state

        state: Any = memory_state(target.store)
        state.clock = target.clock
    else:
        if target.aiosqlite:
            need("aiosqlite", "aiosqlite")
        from queuert.adapters.sqlite import aiosqlite_state, sqlite_state

        make: Any = aiosqlite_state if target.aiosqlite else sqlite_state
        state = target.with_clock(make(target.path, **target.tables))
    return state, within_process(target.hub)


def sync_parts(url: str, options: ClientOptions) -> tuple[SyncStateAdapter[Any], NotifyAdapter]:
    target = _Target(url, options)
    if target.path is None:
        from queuert.adapters.memory import sync_memory_state

        state: Any = sync_memory_state(target.store)
        state.clock = target.clock
    elif target.aiosqlite:
        raise InvalidArgument("aiosqlite has no sync connections: use sqlite:///file.db with connect_sync()")
    else:
        from queuert.adapters.sqlite import sync_sqlite_state

        state = target.with_clock(sync_sqlite_state(target.path, **target.tables))
    return state, within_process(target.hub)


def sqlite_hub(path: str, prefix: str) -> SqliteHub:
    """The hub that all clients of these tables share in this process."""
    from queuert.adapters.sqlite import SqliteHub

    return shared(_sqlite_hubs, f"{Path(path).absolute()}#{prefix}", lambda: SqliteHub(path))


class _Target:
    """A URL and its options, checked and split into parts."""

    def __init__(self, url: str, options: ClientOptions) -> None:
        refuse(options, POSTGRES_ONLY, "is for PostgreSQL")
        location = urlsplit(url)
        self.aiosqlite = location.scheme == "sqlite+aiosqlite"
        self.path: Path | None = None
        self.store: MemoryStore | None = None
        self.clock = clock_of(options)
        key: str | None = None
        if location.scheme == "memory":
            if location.netloc + location.path:
                key = url
                self.store = shared(_stores, location.netloc + location.path, self._new_store)
                if self.clock is not None and self.store.clock != self.clock.now:
                    raise InvalidArgument(f"{url} is in use with another clock: all its clients must share one")
            else:
                self.store = self._new_store()
        else:
            self.path = sqlite_file(url)
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

    def _new_store(self) -> MemoryStore:
        from queuert.adapters.memory import MemoryStore

        return MemoryStore() if self.clock is None else MemoryStore(self.clock.now)

    def with_clock(self, state: Any) -> Any:
        """The storage in a file, with the virtual time of a test, if there is one."""
        if self.clock is not None:
            from queuert.adapters.sqlite.virtual_time import SqliteInVirtualTime

            assert self.path is not None
            state.operations = SqliteInVirtualTime(self.tables["table_prefix"], self.clock, self.path)
            state.clock = self.clock
        return state
