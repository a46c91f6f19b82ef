"""Messages between the supervisor and a worker process: one JSON object a line, over a socket.

When one end closes, the other end notices. So a worker process stops if its supervisor is killed.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

LONGEST_LINE = 64 << 20
"""Bytes. A page of metrics is one line."""
FULL = 1 << 16
"""Bytes that wait to be sent. With more, the other end does not read, and beats are left out."""


class Channel:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, connected: socket.socket) -> Channel:
        return cls(*await asyncio.open_connection(sock=connected, limit=LONGEST_LINE))

    def send(self, kind: str, **fields: Any) -> None:
        """Never waits, and never fails: a lost end is noticed by reading."""
        if not self._writer.is_closing():
            self._writer.write(json.dumps({"kind": kind, **fields}).encode() + b"\n")

    @property
    def is_full(self) -> bool:
        return self._writer.transport.get_write_buffer_size() > FULL

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        """Until the other end is gone."""
        while True:
            try:
                line = await self._reader.readline()
            except (OSError, ValueError):
                return
            if not line.endswith(b"\n"):
                return
            yield json.loads(line)

    def close(self) -> None:
        self._writer.close()
