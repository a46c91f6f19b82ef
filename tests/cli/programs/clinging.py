"""A worker in a process that does not end: a thread keeps it."""

from __future__ import annotations

import threading

from tests.cli.programs.shop import worker

__all__ = ["worker"]

threading.Thread(target=threading.Event().wait, daemon=False).start()
