"""Notify adapters made from providers: one subscription for all listeners, and back soon when it is
lost.
"""

from queuert.adapters.broadcast.notify import BroadcastNotify

__all__ = ["BroadcastNotify"]
