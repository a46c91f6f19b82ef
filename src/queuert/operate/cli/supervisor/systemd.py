"""Telling systemd how the service is: the protocol of `sd_notify`, which is one datagram a message.

Outside of systemd, nothing is sent.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping

logger = logging.getLogger("queuert.supervisor")

VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""They are for the supervisor. Worker processes do not get them."""


class ServiceManager:
    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        # "@name" is a socket in the abstract namespace.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self.watchdog_interval = _watchdog_interval(environment) if address else None
        """Seconds within which `alive` has to be called, if systemd wants that. It is half of the
        time after which systemd would end the service."""

    def ready(self) -> None:
        self._send("READY=1")

    def reloading(self) -> None:
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def status(self, text: str) -> None:
        self._send(f"STATUS={text}")

    def alive(self) -> None:
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as datagrams:
                datagrams.settimeout(0)
                datagrams.sendto(message.encode(), self._address)
        except OSError as error:
            logger.warning("could not send %s to systemd: %s", message.partition("\n")[0], error)


def _watchdog_interval(environment: Mapping[str, str]) -> float | None:
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        return int(environment["WATCHDOG_USEC"]) / 2e6
    except (KeyError, ValueError):
        return None
