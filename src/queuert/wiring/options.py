"""The keywords of `connect`, and what clients of one database in one process share."""

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
    """For types that msgspec does not know (see `Codec`)."""
    notify: str | None
    """How workers and waiters are woken early: by `"postgres"` or `"sqlite"`, where that is the database, or else
    `"in-process"`; or through a broker, by its URL: `redis://host`, `nats://host`,
    `postgresql://host/database`. None: they only poll."""
    notify_prefix: str
    """Brokers: what channels and keys begin with (default: `queuert`). Databases that share a broker need one each."""
    notify_bucket: str
    """NATS: the key-value bucket of JetStream that keeps wake hints; made, if need be. Without one there are none."""
    poll_interval: Duration
    """How often `wait` looks for itself, in case a notification was lost (default: 1 s)."""
    migrate: bool
    """Bring the schema up to date when the client is entered (default: yes)."""
    table_prefix: str
    """What the tables' names begin with (default: `queuert_`)."""
    busy_timeout: Duration
    """SQLite: how long to wait for the write lock (default: 5 s)."""
    schema: str
    """PostgreSQL: where the tables are (default: `public`)."""
    listen_url: str
    """PostgreSQL: a direct connection for LISTEN, where the main URL leads to PgBouncer."""
    prepare: bool
    """PostgreSQL: use prepared statements (default: yes). No, for PgBouncer in transaction mode."""
    pool_size: int
    """PostgreSQL: how many connections the client's pool may open (default: 10)."""
    observers: Sequence[Observer]
    """Who is told of what happens (see `Observer`)."""
    generate_id: GenerateId
    validate_id: ValidateId


POSTGRES_ONLY = ("schema", "listen_url", "prepare", "pool_size")


def check_names(options: ClientOptions) -> None:
    unknown = sorted(set(options) - ClientOptions.__annotations__.keys())
    if unknown:
        raise InvalidArgument(f"connect() has no option {', '.join(unknown)}")


def refuse(options: ClientOptions, names: Sequence[str], where: str) -> None:
    """Options that say nothing about this database."""
    found = [name for name in names if name in options]
    if found:
        raise InvalidArgument(f"{', '.join(found)} {where}")


def client_options(options: ClientOptions) -> dict[str, Any]:
    """Those that go to the client itself."""
    return {
        "generate_id": options.get("generate_id", generate_uuid7),
        "validate_id": options.get("validate_id", validate_uuid),
        "poll_interval": seconds(options.get("poll_interval", 1.0), "poll_interval", minimum=0.001),
        "migrate": options.get("migrate", True),
        "observers": options.get("observers", ()),
    }


# Clients of one database in one process share these, for as long as one of them is in use.
_sharing = Lock()
_hubs: WeakValueDictionary[str, InProcessHub] = WeakValueDictionary()


def hub_for(key: str | None) -> InProcessHub:
    """The hub of all clients with this key; None: one of its own."""
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
