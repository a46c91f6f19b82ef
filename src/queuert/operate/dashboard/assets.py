"""The files that pages load. All of them are ours or vendored: nothing comes from elsewhere."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from queuert.operate.dashboard.messages import Response

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
NAMES = ("dashboard.css", "dashboard.js", "charts.js", "icon.svg", "htmx.min.js", "uPlot.iife.min.js", "uPlot.min.css")


@dataclass(frozen=True)
class Asset:
    name: str
    data: bytes
    version: str


@cache
def assets() -> dict[str, Asset]:
    """By name."""
    folder = files("queuert.operate.dashboard") / "static"
    found = {name: (folder / name).read_bytes() for name in NAMES}
    return {name: Asset(name, data, hashlib.sha256(data).hexdigest()[:16]) for name, data in found.items()}


def asset_response(name: str) -> Response | None:
    """None: there is no such file. The address contains the version, so it may be kept for ever."""
    asset = assets().get(name)
    if asset is None:
        return None
    kind = TYPES[f".{name.rpartition('.')[2]}"]
    headers = [("content-type", kind), ("cache-control", "private, max-age=31536000, immutable")]
    return Response(headers=headers, body=asset.data)
