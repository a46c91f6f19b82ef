"""Where tests keep their files: in shared memory if there is room.

Almost all of these files are databases. On a disk, a server spends more time in the file system
than in the code under test.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
ENOUGH = 3 << 30
"""Bytes. A run needs less than 1 GB."""


def use_shared_memory() -> None:
    """Let this process and its children make temporary files in shared memory.

    Not if TMPDIR is set, and not if there is too little of it, as in a container.
    """
    if "TMPDIR" in os.environ or not _is_usable(SHARED_MEMORY):
        return
    if shutil.disk_usage(SHARED_MEMORY).free >= ENOUGH:
        os.environ["TMPDIR"] = tempfile.tempdir = str(SHARED_MEMORY)


def place_for_programs() -> Path | None:
    """A directory on a disk. Shared memory is often mounted `noexec`. None: wherever it may be."""
    return next((place for place in (Path("/tmp"), Path("/var/tmp")) if _is_usable(place)), None)


def _is_usable(place: Path) -> bool:
    return place.is_dir() and os.access(place, os.R_OK | os.W_OK | os.X_OK)
