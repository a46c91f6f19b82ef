"""Brokers for notifications, with any database. Their client libraries are imported when used."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from queuert.adapters.nats import nats_notify, sync_nats_notify
from queuert.adapters.redis import redis_notify, sync_redis_notify
from queuert.errors import InvalidArgument
from queuert.ports.notify import NotifyAdapter, SyncNotifyAdapter
from queuert.wiring import postgres
from queuert.wiring.options import ClientOptions, need, refuse


class _Broker(NamedTuple):
    package: str | None
    """The package that must be installed, which is also the name of the extra. None: `make` and
    `make_sync` check it."""
    make: Callable[..., NotifyAdapter]
    make_sync: Callable[..., SyncNotifyAdapter]


_REDIS = _Broker("redis", redis_notify, sync_redis_notify)
_NATS = _Broker("nats", nats_notify, sync_nats_notify)
_POSTGRES = _Broker(None, postgres.broker, postgres.sync_broker)
_BROKERS = {
    **dict.fromkeys(("redis", "rediss", "unix"), _REDIS),
    **dict.fromkeys(("nats", "tls"), _NATS),
    **dict.fromkeys(postgres.SCHEMES, _POSTGRES),
}


def broker(options: ClientOptions) -> NotifyAdapter | None:
    """The adapter for the URL in `notify=`. None if it is not a URL."""
    found = _find(options)
    return None if found is None else found.make(options.get("notify"), **_settings(options))


def sync_broker(options: ClientOptions) -> SyncNotifyAdapter | None:
    found = _find(options)
    return None if found is None else found.make_sync(options.get("notify"), **_settings(options))


def without(channel: object, options: ClientOptions) -> ClientOptions:
    """The options for the database. If there is a broker, the database does not notify."""
    if channel is None:
        return options
    left: ClientOptions = {**options, "notify": None}
    left.pop("notify_prefix", None)
    left.pop("notify_bucket", None)
    return left


def _find(options: ClientOptions) -> _Broker | None:
    notify: object = options.get("notify")
    if not isinstance(notify, str) or "://" not in notify:
        refuse(options, ("notify_prefix", "notify_bucket"), "is for brokers, like notify='redis://host'")
        return None
    scheme = notify.partition("://")[0]
    found = _BROKERS.get(scheme)
    if found is None:
        # The rest of the URL is not shown, because it may contain a password.
        known = ", ".join(f"{name}://" for name in ("redis", "nats", "postgresql"))
        raise InvalidArgument(f"notify='{scheme}://…' is not a supported broker: use one of {known}")
    if found is not _NATS:
        refuse(options, ("notify_bucket",), "is for NATS")
    if found.package is not None:
        need(found.package, found.package)
    return found


def _settings(options: ClientOptions) -> dict[str, str]:
    settings: dict[str, str] = {}
    if "notify_prefix" in options:
        settings["prefix"] = options["notify_prefix"]
    if "notify_bucket" in options:
        settings["bucket"] = options["notify_bucket"]
    return settings
