"""The keywords of `connect`, and the objects that clients of one database in one process share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from threading import Lock
from typing import Any, TypedDict, TypeVar, cast
from weakref import WeakValueDictionary

from queuert.adapters.in_process import InProcessHub, InProcessNotify, NoNotify
from queuert.base.arguments import Duration, seconds
from queuert.base.ids import GenerateId, ValidateId, generate_uuid7, validate_uuid
from queuert.engine.announcing import Announce
from queuert.errors import DriverMissing, InvalidArgument
from queuert.jobs.codecs.codec import Codec
from queuert.ports.clock import Clock
from queuert.ports.notify import NotifyAdapter, NotifyProvider
from queuert.ports.observer import Observer
from queuert.records.retention import Keep

T = TypeVar("T")


class TableOptions(TypedDict, total=False):
    """Where the tables are."""

    schema: str
    table_prefix: str


class EngineOptions(TableOptions, total=False):
    """The keywords of `queuert.sqlalchemy.connect`, which explains them."""

    codecs: Sequence[Codec]
    notify: str | NotifyProvider | Callable[[], NotifyProvider] | NotifyAdapter | None
    notify_prefix: str
    notify_bucket: str
    poll_interval: Duration
    migrate: bool
    busy_timeout: Duration
    listen_url: str
    observers: Sequence[Observer]
    keep: Keep
    announce: Announce
    statistics: bool
    generate_id: GenerateId
    validate_id: ValidateId
    clock: Clock | None


class ClientOptions(EngineOptions, total=False):
    """The keywords of `queuert.connect`, which explains them."""

    prepare: bool
    pool_size: int


POSTGRES_ONLY = ("schema", "listen_url", "prepare", "pool_size")


def need(extra: str, *modules: str) -> None:
    """Raise `DriverMissing` unless the modules can be imported. `queuert[extra]` installs them."""
    for module in modules:
        try:
            import_module(module)
        except ImportError as error:
            raise DriverMissing(extra, [extra], error) from error


def check_names(options: EngineOptions) -> None:
    unknown = sorted(set(options) - ClientOptions.__annotations__.keys())
    if unknown:
        raise InvalidArgument(f"connect() has no option {', '.join(unknown)}: check the spelling")


def refuse(options: ClientOptions, names: Sequence[str], where: str) -> None:
    """Raise an error for options that have no meaning for this database."""
    found = [name for name in names if name in options]
    if found:
        raise InvalidArgument(f"{', '.join(found)} {where}")


def clock_of(options: ClientOptions) -> Clock | None:
    clock: Any = options.get("clock")
    if clock is not None and not isinstance(clock, Clock):
        raise InvalidArgument(f"clock takes a queuert.testing.Clock, got {clock!r}")
    if clock is not None and not options.get("migrate", True):
        raise InvalidArgument("clock= needs migrate=True: it has tables of its own")
    return clock


def channel_name(options: ClientOptions, *names: str) -> str | None:
    """The channel in `notify=`: one of these names (the first is the default), or None."""
    notify: Any = options.get("notify", names[0])
    if notify is not None and notify not in names:
        known = ", ".join(repr(name) for name in names)
        if isinstance(notify, str) and ":" in notify:  # a URL perhaps, which may contain a password
            notify = f"{notify.partition(':')[0]}:…"
        raise InvalidArgument(
            f"for this database, notify must be {known}, a broker's URL, a NotifyProvider or None, got {notify!r}"
        )
    return cast("str | None", notify)


def client_options(options: ClientOptions) -> dict[str, Any]:
    """The options of the client itself."""
    return {
        "generate_id": options.get("generate_id", generate_uuid7),
        "validate_id": options.get("validate_id", validate_uuid),
        "poll_interval": seconds(options.get("poll_interval", 1.0), "poll_interval", minimum=0.001),
        "migrate": options.get("migrate", True),
        "observers": options.get("observers", ()),
        "announce": _announce(options),
        "statistics": options.get("statistics", True),
    }


def _announce(options: ClientOptions) -> Announce:
    announce: Any = options.get("announce", "background")
    if announce not in ("background", "wait"):
        raise InvalidArgument(f'announce must be "background" or "wait", got {announce!r}')
    found: Announce = announce
    return found


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
