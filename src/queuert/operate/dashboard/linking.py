"""The ids in the text of a reason, as links."""

from __future__ import annotations

import re
from typing import NamedTuple

from queuert.features.why import Blocked, ClusterFull, Holder, LimitFull, OrderHeld, QueueFull, Reason, SlotsBusy


class Piece(NamedTuple):
    """A part of a text."""

    text: str
    path: str | None
    """The page that it names."""


def linked(text: str, reason: Reason) -> list[Piece]:
    """The text of the reason in pieces. Its ids lead to their pages."""
    paths = _paths(reason)
    if not paths:
        return [Piece(text, None)]
    # The longest first: an id of the user's own kind may contain another one.
    ids = sorted(map(re.escape, paths), key=len, reverse=True)
    pieces = re.split(f"({'|'.join(ids)})", text)
    return [Piece(piece, paths.get(piece)) for piece in pieces if piece]


def _paths(reason: Reason) -> dict[str, str]:
    match reason:
        case Blocked():
            return {each.chain_id: f"/chain/{each.chain_id}" for each in reason.chains}
        case LimitFull():
            return {job_id: f"/job/{job_id}" for job_id in reason.held_by}
        case OrderHeld():
            return {reason.job_id: f"/job/{reason.job_id}"}
        case (
            QueueFull(oldest=Holder() as held)
            | ClusterFull(oldest=Holder() as held)
            | SlotsBusy(oldest=Holder() as held)
        ):
            return {held.job_id: f"/job/{held.job_id}"}
        case _:
            return {}
