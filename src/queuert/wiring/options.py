"""The keywords of `connect`, and the objects that clients of one database in one process share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, TypedDict, TypeVar
from weakref import WeakValueDictionary

from queuert.adapters.in_process import InProcessHub, InProcessNotify, NoNotify, SyncInProcessNotify, SyncNoNotify
from queuert.errors import InvalidArgument
from queuert.ids import GenerateId, ValidateId, generate_uuid7, validate_uuid
from queuert.jobs.codec import Codec
from queuert.model import Duration, seconds
from queuert.ports.notify import NotifyAdapter, SyncNotifyAdapter
from queuert.ports.observer import Observer

T = TypeVar("T")


class ClientOptions(TypedDict, total=False):
    """The keywords of `connect` and `connect_sync`."""

    codecs: Sequence[Codec]
    """For types that msgspec does not support (see `Codec`)."""
    notify: str | None
    """How workers and `wait` calls are woken. `"postgres"` is the default on PostgreSQL, `"sqlite"`
    on SQLite, and `"in-process"` in memory. The URL of a broker also works: `redis://host`,
    `nats://host`, `postgresql://host/database`. None: they only poll."""
    notify_prefix: str
    """Brokers: the beginning of all channel and key names (default: `queuert`). Databases that
    share a broker need different prefixes."""
    notify_bucket: str
    """NATS: the JetStream key-value bucket for wake hints. It is created if it does not exist.
    Without a bucket there are no wake hints."""
    poll_interval: Duration
    """How often `wait` reads the database, in case a notification was lost (default: 1 s)."""
    migrate: bool
    """Create or update the tables when the client is entered (default: True)."""
    table_prefix: str
    """The beginning of all table names (default: `queuert_`)."""
    busy_timeout: Duration
    """SQLite: how long to wait for the write lock (default: 5 s)."""
    schema: str
    """PostgreSQL: the schema of the tables (default: `public`)."""
    listen_url: str
    """PostgreSQL: the URL of a direct connection for LISTEN, if the main URL leads to PgBouncer."""
    prepare: bool
    """PostgreSQL: use prepared statements (default: True). Set it to False for PgBouncer in
    transaction mode."""
    pool_size: int
    """PostgreSQL: how many connections the client's pool may open (default: 10). Set it to the
    number of handlers that use the database at once, plus 2."""
    observers: Sequence[Observer]
    """Objects that receive events (see `Observer`)."""
    generate_id: GenerateId
    """Makes the ids of new jobs (default: UUIDv7). Ids should increase over time, because listings
    are sorted by id."""
    validate_id: ValidateId
    """Raises `InvalidJobId` for an id that is not allowed (default: any UUID in lower case)."""


POSTGRES_ONLY = ("schema", "listen_url", "prepare", "pool_size")


def check_names(options: ClientOptions) -> None:
    unknown = sorted(set(options) - ClientOptions.__annotations__.keys())
    if unknown:
        raise InvalidArgument(f"connect() has no option {', '.join(unknown)}: check the spelling")


def refuse(options: ClientOptions, names: Sequence[str], where: str) -> None:
    """Reject options that do not apply to this database."""
    found = [name for name in names if name in options]
    if found:
        raise InvalidArgument(f"{', '.join(found)} {where}")


def client_options(options: ClientOptions) -> dict[str, Any]:
    """The options of the client itself."""
    return {
        "generate_id": options.get("generate_id", generate_uuid7),
        "validate_id": options.get("validate_id", validate_uuid),
        "poll_interval": seconds(options.get("poll_interval", 1.0), "poll_interval", minimum=0.001),
        "migrate": options.get("migrate", True),
        "observers": options.get("observers", ()),
    }


# Clients of one database in one process share these, as long as one of them is in use.
_sharing = Lock()
_hubs: WeakValueDictionary[str, InProcessHub] = WeakValueDictionary()


def hub_for(key: str | None) -> InProcessHub:
    """The hub of all clients with this key. With None, a new hub."""
    return InProcessHub() if key is None else shared(_hubs, key, InProcessHub)


def shared(known: WeakValueDictionary[str, T], key: str, make: Callable[[], T]) -> T:
    with _sharing:
        found = known.get(key)
        if found is None:
            found = known[key] = make()
        return found


def within_process(hub: InProcessHub | None) -> NotifyAdapter:
    return NoNotify() if hub is None else InProcessNotify(hub)


def sync_within_process(hub: InProcessHub | None) -> SyncNotifyAdapter:
    return SyncNoNotify() if hub is None else SyncInProcessNotify(hub)
