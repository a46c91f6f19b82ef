"""PostgreSQL, through the driver that the URL names or that is installed.

Drivers are imported when they are used, not before. So is this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from queuert.adapters.postgres import adapter
from queuert.adapters.postgres.urls import SHAPE, check_url
from queuert.errors import DriverMissing, InvalidArgument
from queuert.ports.notify import NotifyAdapter
from queuert.ports.state import StateAdapter, SyncStateAdapter
from queuert.wiring.options import ClientOptions, channel_name, clock_of, hub_for, need, refuse, within_process
from queuert.wiring.urls import POSTGRES, Driver

_MODULES: dict[Driver, tuple[str, ...]] = {"psycopg": ("psycopg", "psycopg_pool"), "asyncpg": ("asyncpg",)}


def parts(url: str, options: ClientOptions) -> tuple[StateAdapter[Any], NotifyAdapter]:
    target = _Target(url, options)
    driver = target.named_driver or _installed_driver()
    require(driver)
    if driver == "psycopg":
        make_state: Any = adapter.psycopg_state
        make_notify: Any = adapter.psycopg_notify
    else:
        make_state, make_notify = adapter.asyncpg_state, adapter.asyncpg_notify
    state: StateAdapter[Any] = target.with_clock(make_state(target.url, **target.tables, **target.pool))
    return state, target.notify_adapter(make_notify, state.provider)


def sync_parts(url: str, options: ClientOptions) -> tuple[SyncStateAdapter[Any], NotifyAdapter]:
    target = _Target(url, options)
    if target.named_driver == "asyncpg":
        raise InvalidArgument("asyncpg has no sync connections: use postgresql+psycopg:// with connect_sync()")
    require("psycopg")
    state: SyncStateAdapter[Any] = target.with_clock(
        adapter.sync_psycopg_state(target.url, **target.tables, **target.pool)
    )
    return state, target.notify_adapter(adapter.psycopg_notify, state.provider)


def broker(url: str, *, prefix: str | None = None) -> NotifyAdapter:
    """PostgreSQL as the broker for another database."""
    plain, driver = _plain(url, "notify"), POSTGRES[url.partition(":")[0]] or _installed_driver()
    require(driver)
    make: Any = adapter.psycopg_notify if driver == "psycopg" else adapter.asyncpg_notify
    made: NotifyAdapter = make(plain, channel_prefix=prefix)
    return made


class _Target:
    """A URL and its options, checked and split into parts."""

    def __init__(self, url: str, options: ClientOptions) -> None:
        refuse(options, ("busy_timeout",), "is for SQLite")
        self.url = _plain(url, "the database URL")
        self.named_driver: Driver | None = POSTGRES[url.partition(":")[0]]
        self.listen_url = _plain(options.get("listen_url", url), "listen_url")
        self.tables: dict[str, Any] = {
            "schema": options.get("schema", adapter.DEFAULT_SCHEMA),
            "table_prefix": options.get("table_prefix", adapter.DEFAULT_PREFIX),
        }
        self.pool: dict[str, Any] = {
            "prepare": options.get("prepare", True),
            "pool_size": _pool_size(options.get("pool_size", adapter.DEFAULT_POOL_SIZE)),
        }
        self.notify = channel_name(options, "postgres", "in-process")
        self.clock = clock_of(options)

    def with_clock(self, state: Any) -> Any:
        """The storage, with the virtual time of a test, if there is one."""
        if self.clock is not None:
            from queuert.adapters.postgres.virtual_time import PostgresInVirtualTime

            state.operations = PostgresInVirtualTime(**self.tables, clock=self.clock, url=self.url)
            state.clock = self.clock
        return state

    def notify_adapter(self, make: Callable[..., NotifyAdapter], provider: object) -> NotifyAdapter:
        if self.notify == "postgres":
            return make(provider, listen_url=self.listen_url, **self.tables)
        key = f"{self.url}#{self.tables['schema']}.{self.tables['table_prefix']}"
        return within_process(hub_for(key) if self.notify else None)


def _pool_size(size: object) -> int:
    if type(size) is not int or size < 2:
        # One for a worker to renew leases, which handlers cannot take, and one for everything else.
        raise InvalidArgument(f"pool_size must be a number of 2 or more, got {size!r}")
    return size


def _plain(url: object, what: str) -> str:
    """The URL in the form that the drivers accept.

    The error does not show the URL, because it may contain a password.
    """
    if isinstance(url, str):
        scheme, separator, rest = url.partition("://")
        if separator and scheme in POSTGRES:
            check_url(url, what)
            return f"postgresql://{rest}"
    raise InvalidArgument(f"{what} {SHAPE}")


def _installed_driver() -> Driver:
    try:
        require("psycopg")
    except DriverMissing as no_psycopg:
        try:
            require("asyncpg")
        except DriverMissing as no_asyncpg:
            neither = ImportError(f"{no_psycopg.__cause__}; {no_asyncpg.__cause__}")
            raise DriverMissing("a driver for PostgreSQL", ["psycopg", "asyncpg"], neither) from no_psycopg
        return "asyncpg"
    return "psycopg"


def require(driver: Driver) -> None:
    need(driver, *_MODULES[driver])
