"""Notifications through ZeroMQ: a provider for a library that queuert knows nothing about.

    pip install queuert pyzmq
    python examples/zeromq_notify.py

ZeroMQ has no server, so a forwarder of four lines connects the processes. The provider below is all
that queuert needs: it publishes, and it subscribes. With it, a worker and a waiting client in another
thread wake each other at once, although neither of them polls.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import zmq
import zmq.asyncio

from queuert import Attempt, EntryJob, Handlers, Worker, connect, connect_sync

HOUR = 3600


class ZeroMQProvider:
    """Publishes to the forwarder, and subscribes to what it sends to everyone."""

    def __init__(self, publish_to: str, subscribe_to: str) -> None:
        self._publish_to = publish_to
        self._subscribe_to = subscribe_to
        self._context = zmq.asyncio.Context()
        self._publisher: zmq.asyncio.Socket | None = None

    async def publish(self, channel: str, messages: Sequence[str]) -> None:
        if self._publisher is None:
            self._publisher = self._context.socket(zmq.PUSH)
            self._publisher.connect(self._publish_to)
        for message in messages:
            parts = [channel.encode(), message.encode()]
            await self._publisher.send_multipart(parts)  # pyright: ignore[reportUnknownMemberType]

    async def subscribe(
        self, channels: Sequence[str], on_message: Callable[[str, bytes], None], ready: Callable[[], None]
    ) -> None:
        # ZeroMQ reconnects silently. Its monitor tells when the connection was lost: then this method
        # ends, queuert calls it again, and tells listeners that they may have missed something.
        with (
            self._context.socket(zmq.SUB) as subscriber,
            subscriber.get_monitor_socket(zmq.EVENT_DISCONNECTED) as monitor,
        ):
            subscriber.connect(self._subscribe_to)
            for channel in channels:
                subscriber.subscribe(channel)
            # The forwarder may not know of the subscription yet. That does not matter: queuert sends
            # itself a message through it, and waits until that has arrived.
            ready()
            poller = zmq.asyncio.Poller()
            poller.register(monitor, zmq.POLLIN)
            poller.register(subscriber, zmq.POLLIN)
            while monitor not in dict(await poller.poll()):
                name, payload = await subscriber.recv_multipart()
                on_message(name.decode(), payload)

    async def close(self) -> None:
        if self._publisher is not None:
            self._publisher.close(linger=1000)  # milliseconds, for what was not sent yet
        await asyncio.to_thread(self._context.term)


def forward(publish_to: str, subscribe_to: str) -> None:
    """The forwarder: a process of its own, somewhere in your network."""
    with zmq.Context() as context, context.socket(zmq.PULL) as incoming, context.socket(zmq.PUB) as outgoing:
        incoming.bind(publish_to)
        outgoing.bind(subscribe_to)
        print("forwarding", flush=True)
        zmq.proxy(incoming, outgoing)


# A program that uses it


class Greet(EntryJob[str], name="greet"):
    who: str


handlers = Handlers()


@handlers.handles(Greet)
async def greet(attempt: Attempt[Greet]) -> str:
    return f"Hello, {attempt.job.who}"


def start_and_wait(database: str, addresses: tuple[str, str]) -> str:
    """A sync client takes the same provider."""
    notify = ZeroMQProvider(*addresses)
    with connect_sync(database, jobs=[Greet], notify=notify, notify_prefix="shop", poll_interval=HOUR) as client:
        with client.transaction() as tx:
            chain = client.start(tx, Greet(who="ZeroMQ"))
        return client.wait(chain, timeout=30)


async def main(addresses: tuple[str, str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        database = f"sqlite:///{Path(directory) / 'jobs.db'}"
        notify = ZeroMQProvider(*addresses)
        async with (
            connect(database, jobs=[Greet], notify=notify, notify_prefix="shop") as client,
            Worker(client, handlers, poll_interval=HOUR),
        ):
            print(await asyncio.to_thread(start_and_wait, database, addresses))


if __name__ == "__main__":
    arguments = sys.argv[1:] or ["tcp://127.0.0.1:5581", "tcp://127.0.0.1:5582"]
    if arguments[0] == "forward":
        forward(*arguments[1:])
    else:
        forwarder = subprocess.Popen([sys.executable, __file__, "forward", *arguments], stdout=subprocess.PIPE)
        try:
            assert forwarder.stdout is not None
            forwarder.stdout.readline()  # it has begun
            asyncio.run(main((arguments[0], arguments[1])))
        finally:
            forwarder.terminate()
            forwarder.wait()
