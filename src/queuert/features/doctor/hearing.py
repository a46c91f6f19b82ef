"""Whether a message comes back to us by the notification channel.

A pooler in transaction mode accepts LISTEN and delivers nothing. The message is about a job that
does not exist, so other listeners ignore it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from queuert.base.ids import generate_uuid7
from queuert.base.patience import PatientTimeout
from queuert.errors import ClientClosed
from queuert.ports.notify import NotifyAdapter

HEAR_SECONDS = 5.0
"""How long a message may take to come back."""
EVERY = 1.0
"""Seconds between two messages: the first ones may be sent before the channel listens."""


async def hears_itself(notify: NotifyAdapter) -> bool | None:
    """None: the channel does not leave this process, so there is nothing to hear."""
    if getattr(notify, "immediate", False):
        return None
    value, heard, loop = generate_uuid7(), asyncio.Event(), asyncio.get_running_loop()

    def callback(received: str) -> None:
        if received == value:
            loop.call_soon_threadsafe(heard.set)

    try:
        with PatientTimeout(HEAR_SECONDS):
            dispose = await notify.listen("ownership_lost", callback)
            try:
                while not heard.is_set():
                    await notify.publish("ownership_lost", [value])
                    with suppress(TimeoutError):
                        await asyncio.wait_for(heard.wait(), EVERY)
            finally:
                await dispose()
    except ClientClosed:
        raise
    except Exception:
        return False  # it is down: that is what was asked
    return True
