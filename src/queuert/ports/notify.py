"""The notify port: messages that wake workers and waiters early.

Losing a message is harmless: workers and waiters also poll. There are five topics:

- `job_scheduled`: a job of a type can be claimed; the value is the type's name.
- `chain_ended`: a chain has ended or was deleted; the value is its id.
- `ownership_lost`: a running job was taken from its worker; the value is the job's id.
- `pause_changed`: something was paused or resumed; the value names it.
- `schedule_changed`: a schedule may be due earlier than it was; the value is its name.

`NotifyAdapter` is what clients and workers use. Most adapters are built from a `NotifyProvider`,
which only moves text between processes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

__all__ = ["NotifyAdapter", "NotifyProvider"]

Topic = Literal["job_scheduled", "chain_ended", "ownership_lost", "pause_changed", "schedule_changed"]
TOPICS: tuple[Topic, ...] = ("job_scheduled", "chain_ended", "ownership_lost", "pause_changed", "schedule_changed")

Callback = Callable[[str], None]
"""Called with one value. It may be called from any thread, must return quickly and must not
raise."""
Dispose = Callable[[], Awaitable[None]]

MISSED = ""
"""Means: messages may have been lost, read the database. No type, chain or job has this name."""


class Draw(NamedTuple):
    """Lets every worker that receives an announcement decide, without a query, whether it should
    claim at once.
    """

    number: int
    """Random, and the same for all that receive it."""
    jobs: int
    """About how many jobs were announced with it."""


class Announced(str):
    """A value that was announced with a draw. Adapters that keep wake hints need none."""

    draw: Draw


OnMessage = Callable[[str, str | bytes], None]
"""Called with a channel and a payload."""


class NotifyAdapter(Protocol):
    """Publishes and listens for one client.

    An adapter whose coroutines never suspend may set `immediate = True`. A sync client then runs
    them in the calling thread, and publishing needs no time limit.

    Optional, for a channel that keeps no wake hints:

    - `def provide_wake_hints_now(self, counts: Mapping[str, int]) -> bool`: does what
      `provide_wake_hints` does, if nothing needs to be sent for it. It may keep the numbers, to
      send them with the next `job_scheduled` (see `Draw`). False: `provide_wake_hints` must be
      called.

    Optional, for a channel that belongs to the database of the jobs. The lock shows other workers
    that a worker is gone (see `StateOperations.dead_workers`):

    - `async def hold(self, key: int) -> int | None`: try to hold the lock with this key on the
      listening connection, and never wait for it. Returns the id of the session that holds it:
      another one after a reconnection, which has lost the lock and took it again. None if the lock
      is not held, for example because the connection goes through a pooler. If the lock is held
      already, nothing is sent.
    - `async def release(self, key: int) -> None`: release the lock, if it is held.
    """

    async def publish(self, topic: Topic, values: Sequence[str]) -> None:
        """Send the values to every listener of the topic, in this process and in others."""
        ...

    async def listen(self, topic: Topic, callback: Callback) -> Dispose:
        """Call `callback` with each value that is published from now on, until it is disposed of.

        Any number of callbacks share one listening connection. When that connection was lost and
        is back, every callback is called with `MISSED`.
        """
        ...

    async def provide_wake_hints(self, counts: Mapping[str, int]) -> None:
        """Add to the budget of each type, before the jobs are announced.

        Wake hints prevent many idle workers from all querying the database for one job. Budgets of
        concurrent publishers add up. An adapter without wake hints does nothing here.
        """
        ...

    async def consume_wake_hint(self, type_name: str) -> bool:
        """Take one from the type's budget: True if there was one, or if no budget is known.

        False means that the budget is used up, so other workers are already awake.
        """
        ...

    async def close(self) -> None:
        """End all listeners. A second call does nothing.

        Afterwards all other methods raise `ClientClosed`; dispose functions do nothing.
        """
        ...


class NotifyProvider(Protocol):
    """What you write to use a message broker: two methods, and optional ones if the broker can
    offer them.

    Everything else is done for you: topics and payloads, one subscription for any number of
    listeners, reconnecting, and telling listeners that they may have missed something.

    Optional members:

    - `async def close(self)`: release what the provider opened. Called once, when the client
      closes.
    - `async def ping(self)`: raise, or do not return, if the current subscription is dead. Without
      it, a message is sent through the broker every 30 seconds, on a channel of its own.
    - `async def extend(self, channels)`: listen to more channels with the current subscription, and
      return when that is active. Without it, the subscription is replaced when a listener needs
      more channels: messages in between are lost, and listeners are told.
    - `max_payload`: the longest message in bytes (default: 7,500).
    - `name`: what error messages call the broker (default: the name of the class).
    - `provide_wake_hints` and `consume_wake_hint`, as in `NotifyAdapter`.
    - `hold` and `release`, as in `NotifyAdapter`.
    """

    async def publish(self, channel: str, messages: Sequence[str]) -> None:
        """Send each message to every subscriber of the channel. Usually there is only one."""
        ...

    async def subscribe(self, channels: Sequence[str], on_message: OnMessage, ready: Callable[[], None]) -> None:
        """Listen to all of the channels until cancelled.

        Call `ready()` once the subscription is active, then `on_message(channel, payload)` for each
        message. Return or raise when the connection is lost: the call is then repeated. Do not
        reconnect silently, because listeners must hear that they missed something.

        At most one call is under way at a time. Release the connection before returning.
        """
        ...
