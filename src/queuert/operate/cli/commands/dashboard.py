"""`queuert dashboard`: the web page, for people on this machine."""

from __future__ import annotations

import argparse
import secrets
import socket
import sys
from typing import Any

from queuert.client.client import Client
from queuert.errors import DriverMissing
from queuert.operate.cli.arguments import Parsers, add_by, by_of
from queuert.operate.cli.database import add_client_command
from queuert.operate.dashboard import Dashboard
from queuert.operate.dashboard.access import local_operator
from queuert.operate.dashboard.doors.token import TokenDoor
from queuert.operate.exits import DONE, CommandError

TEXT = """\
Serves the dashboard until Ctrl-C, for browsers on this machine only: it listens on the loopback
interface, and refuses what comes through a proxy. The address that it prints contains a token, so
that other users of this machine cannot open it. To look at another machine, forward a port with
ssh. To let others use it, mount the dashboard in your application: docs/dashboard.md tells how.

Changes are recorded with your name.
"""
LISTEN = "127.0.0.1:8000"
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def add(parsers: Parsers) -> None:
    parser = add_client_command(
        parsers, "dashboard", "serve the web page, for this machine", TEXT, _serve, goes_on=lambda _: True
    )
    parser.add_argument(
        "--listen", metavar="HOST:PORT", default=LISTEN, type=_address, help=f"where to listen (default: {LISTEN})"
    )
    parser.add_argument(
        "--no-token",
        action="store_true",
        help="let everyone in who reaches it from this machine: its other users, and visitors through a proxy",
    )
    parser.add_argument("--title", default="queuert", help="what the pages are headed with (default: queuert)")
    add_by(parser)
    parser.add_argument(
        "--hide", metavar="FIELD", action="append", default=[], help="do not show this field of inputs and outputs"
    )


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if host not in LOOPBACK:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not on this machine: listen on 127.0.0.1, localhost or [::1], and a port"
        )
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r} has no port: give one, like {LISTEN}")
    return host, int(port)


async def _serve(arguments: argparse.Namespace, client: Client[Any]) -> int:
    try:
        import uvicorn
    except ImportError as error:
        raise DriverMissing("uvicorn", ["dashboard-server"], error) from None
    dashboard = Dashboard(
        client,
        title=arguments.title,
        secret=secrets.token_hex(),
        access=local_operator(by_of(arguments)),
        hide=arguments.hide,
    )
    listening = _listen(*arguments.listen)
    address, port = listening.getsockname()[:2]
    token = "" if arguments.no_token else secrets.token_urlsafe(32)
    served = TokenDoor(dashboard.asgi, token, f"queuert-{port}") if token else dashboard.asgi
    # `proxy_headers` would let a header decide who the peer is. Streams of pages do not end by
    # themselves.
    config = uvicorn.Config(served, log_level="warning", proxy_headers=False, timeout_graceful_shutdown=1)
    query = f"?token={token}" if token else ""
    sys.stdout.write(f"http://{f'[{address}]' if ':' in address else address}:{port}/{query}\n")
    sys.stdout.flush()
    await uvicorn.Server(config).serve(sockets=[listening])
    return DONE


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise CommandError(f"cannot listen on {host}:{port}: {error.strerror}") from None
