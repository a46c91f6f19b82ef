"""Brokers for notifications, with any database. Each is imported when it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from queuert.errors import InvalidArgument
from queuert.ports.notify import NotifyAdapter
from queuert.wiring.options import ClientOptions, need, refuse
from queuert.wiring.urls import POSTGRES


class _Broker(NamedTuple):
    package: str | None
    """It must be installed; our extra has the same name. None: `make` checks it."""
    make: Callable[..., NotifyAdapter]


def _redis(*args: Any, **settings: Any) -> NotifyAdapter:
    from queuert.adapters.redis import redis_notify

    return redis_notify(*args, **settings)


def _nats(*args: Any, **settings: Any) -> NotifyAdapter:
    from queuert.adapters.nats import nats_notify

    return nats_notify(*args, **settings)


def _postgres(*args: Any, **settings: Any) -> NotifyAdapter:
    from queuert.wiring import postgres

    return postgres.broker(*args, **settings)


def _own(*args: Any, **settings: Any) -> NotifyAdapter:
    from queuert.adapters.broadcast import BroadcastNotify

    return BroadcastNotify(*args, **settings)


_REDIS = _Broker("redis", _redis)
_NATS = _Broker("nats", _nats)
_POSTGRES = _Broker(None, _postgres)
_OWN = _Broker(None, _own)
_BROKERS = {
    **dict.fromkeys(("redis", "rediss", "unix"), _REDIS),
    **dict.fromkeys(("nats", "tls"), _NATS),
    **dict.fromkeys(POSTGRES, _POSTGRES),
}


def broker(options: ClientOptions) -> NotifyAdapter | None:
    """The adapter for `notify=`, if that is a broker; None if it is one of the database's own
    channels.
    """
    notify: Any = options.get("notify")
    found = _find(notify)
    if found is None:
        refuse(options, ("notify_prefix", "notify_bucket"), "is for brokers, like notify='redis://host'")
        return notify if hasattr(notify, "listen") else None
    if found is not _NATS:
        refuse(options, ("notify_bucket",), "is for NATS")
    if found.package is not None:
        need(found.package, found.package)
    settings = {"prefix": options.get("notify_prefix"), "bucket": options.get("notify_bucket")}
    return found.make(notify, **{name: value for name, value in settings.items() if value is not None})


def without(channel: object, options: ClientOptions) -> ClientOptions:
    """The options for the database. If there is a broker, the database does not notify."""
    return options if channel is None else {**options, "notify": None}


def _find(notify: Any) -> _Broker | None:
    if not isinstance(notify, str):
        return _OWN if hasattr(notify, "subscribe") or callable(notify) else None
    if "://" not in notify:
        return None
    scheme = notify.partition("://")[0]
    found = _BROKERS.get(scheme)
    if found is None:
        # The rest of the URL is not shown, because it may contain a password.
        known = ", ".join(f"{name}://" for name in ("redis", "nats", "postgresql"))
        raise InvalidArgument(f"notify='{scheme}://…' is not a supported broker: use one of {known}")
    return found
