"""Which view answers which address."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from queuert.operate.dashboard.changes import bulk, limits, pauses, pruning, repair
from queuert.operate.dashboard.changes import chains as chain_changes
from queuert.operate.dashboard.changes import schedules as schedule_changes
from queuert.operate.dashboard.messages import LARGEST_FORM, LARGEST_WITH_INPUT, Response
from queuert.operate.dashboard.pages import (
    chain,
    chains,
    job,
    operations,
    overview,
    queues,
    schedules,
    storage,
    workers,
)

View = Callable[..., Awaitable[Response]]
"""Takes a `Visit`, and the named parts of the address."""


class Route(NamedTuple):
    view: View
    changes: bool
    values: dict[str, str]

    @property
    def largest(self) -> int:
        """Bytes that its form may have."""
        return LARGEST_WITH_INPUT if self.view is repair.view else LARGEST_FORM


_ID = r"(?P<id>.{1,200})"
"""Ids of the user's own kind may contain anything, also slashes."""
_READING: tuple[tuple[str, View], ...] = (
    (r"/", overview.view),
    (r"/chains", chains.view),
    (rf"/chain/{_ID}", chain.view),
    (rf"/job/{_ID}/(?P<part>input|output|error)\.json", job.whole),
    (rf"/job/{_ID}", job.view),
    (r"/workers", workers.view),
    (r"/queues", queues.view),
    (r"/schedules", schedules.view),
    (r"/schedule", schedules.one),
    (r"/operations", operations.view),
    (r"/storage", storage.view),
)
_CHANGING: tuple[tuple[str, View], ...] = (
    (rf"/change/(?P<action>retry|cancel|trigger|delete)/{_ID}", chain_changes.view),
    (rf"/change/repair/{_ID}", repair.view),
    (r"/change/many/(?P<action>retry|cancel|trigger|delete|set_priority)", bulk.view),
    (r"/change/(?P<action>pause|resume)", pauses.view),
    (r"/change/schedule/(?P<action>pause|resume|trigger|delete)", schedule_changes.view),
    (r"/change/limit/(?P<action>set|clear)", limits.view),
    (r"/change/prune", pruning.view),
)
_ROUTES = [
    (re.compile(pattern, re.DOTALL), view, changes)
    for routes, changes in ((_READING, False), (_CHANGING, True))
    for pattern, view in routes
]


def find(path: str) -> Route | None:
    for pattern, view, changes in _ROUTES:
        found = pattern.fullmatch(path)
        if found is not None:
            return Route(view, changes, found.groupdict())
    return None
