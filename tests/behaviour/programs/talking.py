"""How a child program and the test that started it talk: lines on stdout, lines on stdin."""

from __future__ import annotations

import asyncio
import sys


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def told_to_go_on() -> None:
    """Wait for a line from the test."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        await reader.readline()
    finally:
        transport.close()
