"""NOTIFY over Django's own connection."""

from __future__ import annotations

from queuert.adapters.postgres.notify.sync import SyncPostgresNotify


class DjangoNotify(SyncPostgresNotify):
    """Sends notifications on the connection that has just committed, in its thread.

    At that moment the connection is free, and the server is known to be reachable.
    """

    immediate = True
