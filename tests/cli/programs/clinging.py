"""A worker in a process that does not end: a thread keeps it."""

from __future__ import annotations

import threading

from tests.cli.programs.shop import worker

from queuert.worker import stopping

__all__ = ["worker"]

stopping.CLOSE = 0.2  # the supervisor has to wait for as long as its worker may take to stop
threading.Thread(target=threading.Event().wait, daemon=False).start()
