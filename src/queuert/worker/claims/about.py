"""What a worker stores about itself: its host, its version, its limits, and its handlers."""

from __future__ import annotations

import os
import socket
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from queuert.records.workers import WorkerAbout
from queuert.worker.policy.options import WorkerOptions


def about(options: WorkerOptions, seen_every: float) -> WorkerAbout:
    policy = options.policy
    return WorkerAbout(
        host=socket.gethostname(),
        pid=os.getpid(),
        version=_version(),
        release=options.release,
        slots=policy.concurrency,
        cluster_cap=policy.cluster_cap,
        queues=policy.described(),
        seen_every=seen_every,
    )


@cache
def _version() -> str:
    """The version of the library."""
    try:
        return version("queuert")
    except PackageNotFoundError:  # it runs from its source, and is not installed
        return "unknown"
