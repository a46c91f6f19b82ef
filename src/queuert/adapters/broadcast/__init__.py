"""Notify adapters made from providers.

All listeners share one subscription, which is renewed when it is lost.
"""

from queuert.adapters.broadcast.notify import BroadcastNotify

__all__ = ["BroadcastNotify"]
