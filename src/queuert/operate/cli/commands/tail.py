"""`queuert tail`: new and changed chains, as it happens."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from queuert.client.client import Client
from queuert.jobs.chain import Chain
from queuert.operate.cli.arguments import Parsers, not_negative, seconds
from queuert.operate.cli.commands.ls import chain_object
from queuert.operate.cli.database import add_client_command
from queuert.operate.cli.following import BY_ID, Follower
from queuert.operate.exits import CommandError
from queuert.operate.filters import read_filter
from queuert.operate.listing import types_of
from queuert.operate.terminal import Output, clean
from queuert.operate.times import local
from queuert.ports.notify import MISSED, NotifyAdapter

TEXT = """\
Shows chains when they are started, and whenever their status or their current job changes, until
Ctrl-C. It begins with the latest chains that match.

  queuert tail status:failed type:charge-card

It looks when it is notified, and at least every few seconds. Each look reads a bounded number of
chains. A status that ends before the next look is not shown.
"""

EVERY = 1.0
"""Seconds between two looks, if nothing is heard."""
SHORTEST = 0.2
"""Seconds between two looks, however much is heard."""
LAST = 10
MOST = 1000


def add(parsers: Parsers) -> None:
    parser = add_client_command(
        parsers, "tail", "show new and changed chains, as it happens", TEXT, _tail, goes_on=lambda _: True
    )
    parser.add_argument("filter", metavar="FILTER", nargs="*", help="words like status:failed; all of them must match")
    parser.add_argument(
        "--last", metavar="N", type=not_negative, default=LAST, help=f"how many chains to begin with (default: {LAST})"
    )
    parser.add_argument(
        "--every",
        metavar="SECONDS",
        type=seconds,
        default=EVERY,
        help=f"how often to look if no notification arrives (default: {EVERY:g})",
    )


async def _tail(arguments: argparse.Namespace, client: Client[Any]) -> int:
    output = Output(arguments)
    if arguments.last > MOST:
        raise CommandError(f"--last takes a number up to {MOST:,}: `queuert ls` lists more")
    follower = Follower(client, await read_filter(client, arguments.filter))
    hearing = Hearing()
    listening = asyncio.create_task(hearing.listen(client))
    try:
        shown = await follower.begin(arguments.last)
        while True:
            _show(shown, output)
            if follower.overwhelmed:
                sys.stderr.write("queuert tail: more chains are new than are shown\n")
            await hearing.wait(max(arguments.every, SHORTEST))
            shown = await follower.look(hearing.take())
    finally:
        listening.cancel()
        await asyncio.wait({listening})


def _show(chains: Sequence[Chain[Any]], output: Output) -> None:
    now = datetime.now(UTC)
    for chain in chains:
        if output.json:
            output.json_line({"at": now, **chain_object(chain)})
            continue
        error = (chain.last_error or {}).get("code") or ""
        status = chain.status or ""
        rest = output.cut(clean(f"  {chain.id}  {types_of(chain)}  {error}").rstrip(), len(local(now)) + 11)
        output.line(f"{local(now)}  {output.status(status)}{' ' * (9 - len(status))}{rest}")
    sys.stdout.flush()


class Hearing:
    """What the notification channel tells. Without a channel, nothing is heard."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended: dict[str, None] = {}
        self._woken = asyncio.Event()

    async def listen(self, client: Client[Any]) -> None:
        """The client ends the listeners when it closes."""
        notify: NotifyAdapter = client.sessions.channel
        with suppress(Exception):
            await notify.listen("chain_ended", lambda value: self._call(self._chain_ended, value))
            await notify.listen("job_scheduled", lambda _: self._call(self._woken.set))

    async def wait(self, longest: float) -> None:
        await asyncio.sleep(SHORTEST)
        with suppress(TimeoutError):
            async with asyncio.timeout(longest - SHORTEST):
                await self._woken.wait()
        self._woken.clear()

    def take(self) -> list[str]:
        """The latest chains that have been heard to end."""
        ended = list(self._ended)[-BY_ID:]
        self._ended.clear()
        return ended

    def _call(self, function: Any, *arguments: Any) -> None:
        """The channel may call from any thread, also when the loop has just been closed."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def _chain_ended(self, value: str) -> None:
        if value != MISSED:
            self._ended[value] = None
            if len(self._ended) > 2 * BY_ID:
                self._ended = dict.fromkeys(list(self._ended)[-BY_ID:])
        self._woken.set()
