"""NOTIFY over Django's own connection."""

from __future__ import annotations

from queuert.adapters.postgres.notify.sync import SyncPostgresNotify


class DjangoNotify(SyncPostgresNotify):
    """Announces on the connection that has just committed, in its thread: it is free again, and the server is there."""

    immediate = True
