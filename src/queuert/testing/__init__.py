"""Testing your jobs: one handler, whole chains, virtual time, and crashes.

See the page "Testing your jobs" of the documentation.
"""

from queuert.ports.clock import Clock
from queuert.testing.cleaning import clean
from queuert.testing.crash import Crash, crash_everywhere
from queuert.testing.crash_points import outside
from queuert.testing.rehearsal import AttemptResult, attempt, attempt_sync, completed
from queuert.testing.running import HandlerFailure, Running, SyncRunning, running
from queuert.testing.started import Started, started

__all__ = [
    "AttemptResult",
    "Clock",
    "Crash",
    "HandlerFailure",
    "Running",
    "Started",
    "SyncRunning",
    "attempt",
    "attempt_sync",
    "clean",
    "completed",
    "crash_everywhere",
    "outside",
    "running",
    "started",
]
