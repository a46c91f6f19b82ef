"""Servers that carry notifications, whatever the database. Their clients are imported when they are used."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from queuert.adapters.nats import nats_notify, sync_nats_notify
from queuert.adapters.redis import redis_notify, sync_redis_notify
from queuert.errors import InvalidArgument
from queuert.ports.notify import NotifyAdapter, SyncNotifyAdapter
from queuert.wiring import postgres
from queuert.wiring.options import ClientOptions, refuse


class _Broker(NamedTuple):
    package: str | None
    """That must be installed; it is also the name of our extra for it. None: the makers see to it."""
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
    """The adapter that `notify=` names by a URL; None if it is no URL."""
    found = _find(options)
    return None if found is None else found.make(options.get("notify"), **_settings(options))


def sync_broker(options: ClientOptions) -> SyncNotifyAdapter | None:
    found = _find(options)
    return None if found is None else found.make_sync(options.get("notify"), **_settings(options))


def without(channel: object, options: ClientOptions) -> ClientOptions:
    """The options for the database, which has no part in notifying where there is a broker."""
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
    if found is None:  # the rest of the URL is not shown: there may be a password in it
        known = ", ".join(f"{name}://" for name in ("redis", "nats", "postgresql"))
        raise InvalidArgument(f"notify='{scheme}://…' is no broker that is known here: use one of {known}")
    if found is not _NATS:
        refuse(options, ("notify_bucket",), "is for NATS")
    if found.package is not None:
        try:
            import_module(found.package)
        except ImportError as error:
            raise InvalidArgument(
                f"{found.package} cannot be used ({error}): pip install 'queuert[{found.package}]'"
            ) from error
    return found


def _settings(options: ClientOptions) -> dict[str, str]:
    settings: dict[str, str] = {}
    if "notify_prefix" in options:
        settings["prefix"] = options["notify_prefix"]
    if "notify_bucket" in options:
        settings["bucket"] = options["notify_bucket"]
    return settings
