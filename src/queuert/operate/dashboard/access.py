"""Who may use the dashboard, and what for."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from queuert.base.arguments import MAX_NAME_LENGTH, check_text
from queuert.errors import InvalidArgument

Role = Literal["reader", "operator"]


@dataclass(frozen=True)
class Access:
    """What `access` answers with: who it is, and what this person may do.

    Args:
        role: "reader" sees everything, "operator" also changes it.
        name: The name that the audit shows: 1 to 200 characters.
    """

    role: Role
    name: str

    def __post_init__(self) -> None:
        if self.role not in get_args(Role):
            raise InvalidArgument(f"the role must be 'reader' or 'operator', got {self.role!r}")
        check_text(self.name, "the name of an Access", MAX_NAME_LENGTH)

    @property
    def operates(self) -> bool:
        """Whether this person may change something."""
        return self.role == "operator"


AccessCheck: TypeAlias = Callable[[Any], Access | Awaitable[Access | None] | None]
"""Given the framework's own request. It may be async."""

FORWARDING = frozenset(
    (b"forwarded", b"via", b"x-real-ip", b"x-client-ip", b"x-cluster-client-ip", b"true-client-ip", b"cf-connecting-ip")
)
"""And all that begin with `x-forwarded`, or `x-original`."""


def local_operator(name: str) -> AccessCheck:
    """For a dashboard that is served alone: the people on this machine, and no others.

    The peer must be on the loopback interface. The `Host` must be a local name, so that a page of
    another site cannot reach us under a name that it lets point here. A forwarding header means
    that there is a proxy, and behind a proxy every peer is on the loopback interface.
    """

    def check(scope: Mapping[str, Any]) -> Access | None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        peer = scope.get("client")
        local = peer is not None and _is_loopback(peer[0]) and _is_local_host(headers.get(b"host", b""))
        return Access("operator", name) if local and not any(map(_is_of_a_proxy, headers)) else None

    return check


def _is_of_a_proxy(header: bytes) -> bool:
    return header in FORWARDING or header.startswith((b"x-forwarded", b"x-original"))


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _is_local_host(host: bytes) -> bool:
    try:
        name = urlsplit(f"//{host.decode('latin-1')}").hostname or ""
    except ValueError:
        return False
    return name == "localhost" or _is_loopback(name)
