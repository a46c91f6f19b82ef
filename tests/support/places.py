"""Where tests keep their files: in memory if there is room, for almost all of them are databases.

A server or a SQLite file on a disk spends more time in the file system than in the code under test.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
ENOUGH = 3 << 30
"""Bytes. A run needs less than 1 GB."""

ON_DISK = tempfile.gettempdir()
"""For programs: shared memory is often mounted `noexec`."""


def use_shared_memory() -> None:
    """For this process and its children, unless TMPDIR is set or there is too little of it (as in a container)."""
    if "TMPDIR" in os.environ or not os.access(SHARED_MEMORY, os.R_OK | os.W_OK | os.X_OK):
        return
    if shutil.disk_usage(SHARED_MEMORY).free >= ENOUGH:
        os.environ["TMPDIR"] = tempfile.tempdir = str(SHARED_MEMORY)
