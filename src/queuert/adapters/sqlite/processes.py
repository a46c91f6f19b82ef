"""Which process this is, and whether another one has ended.

A process id alone is not enough: ids are used again, and every container has its own. So a process
is known by its id, the time of its start, the boot of the machine, and its namespaces. All of that
is read from `/proc`. Where there is none, nothing is known.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec


class Identity(msgspec.Struct, frozen=True):
    """A process. Two processes of one machine and of the same namespaces have the same `place`."""

    pid: int
    start: int
    """In ticks since the boot."""
    place: str


_decode = msgspec.json.Decoder(Identity)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # it exists, but belongs to another user
    return True


class Processes:
    def __init__(self, proc: str = "/proc", exists: Callable[[int], bool] = _exists) -> None:
        self._proc = Path(proc)
        self._exists = exists
        self._this: tuple[int, Identity | None] | None = None
        """Kept, with the process id: a forked child is another process."""

    def this_one(self) -> str | None:
        """The identity of this process. None if it is unknown."""
        identity = self._identity()
        return None if identity is None else msgspec.json.encode(identity).decode()

    def has_ended(self, process: str) -> bool:
        """Whether the process with this identity is known to have ended.

        A zombie has ended. A stopped process has not.
        """
        here = self._identity()
        try:
            then = _decode.decode(process)
        except msgspec.MsgspecError:  # written by another version
            return False
        if here is None or here.place != then.place:
            return False
        try:
            state, start = self._stat(str(then.pid))
        except (FileNotFoundError, ProcessLookupError):
            # Some machines hide the processes of other users.
            return not self._exists(then.pid)
        except (OSError, ValueError):
            return False
        return start != then.start or state in ("Z", "X")

    def _identity(self) -> Identity | None:
        pid = os.getpid()
        if self._this is None or self._this[0] != pid:
            self._this = (pid, self._read_identity(pid))
        return self._this[1]

    def _read_identity(self, pid: int) -> Identity | None:
        try:
            if str((self._proc / "self").readlink()) != str(pid):
                return None  # this is the /proc of another namespace
            boot = (self._proc / "sys/kernel/random/boot_id").read_text().strip()
            namespace = str((self._proc / "self/ns/pid").readlink())
            _, start = self._stat(str(pid))
        except (OSError, ValueError):
            return None
        return Identity(pid, start, f"{boot} {namespace} {self._time_namespace()}")

    def _time_namespace(self) -> str:
        """It may move the times of starts. Kernels before 5.6 have none."""
        try:
            return str((self._proc / "self/ns/time").readlink())
        except OSError:
            return ""

    def _stat(self, pid: str) -> tuple[str, int]:
        """State and start. The name of the program, in parentheses, may contain anything."""
        fields = (self._proc / pid / "stat").read_bytes().rpartition(b")")[2].split()
        if len(fields) < 20:
            raise ValueError("stat has too few fields")
        return fields[0].decode(), int(fields[19])
