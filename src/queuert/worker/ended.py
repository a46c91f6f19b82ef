"""How a worker has ended."""

from __future__ import annotations

from dataclasses import dataclass

GAVE_UP = 3
"""The exit code of a worker that gave up. 1 and 2 have other meanings: aborted jobs (and errors of
Python), and wrong arguments."""


@dataclass(frozen=True)
class Ended:
    """`clean`: every job was settled. `failure`: why the worker ended by itself.

    `out_of_tries`: `recovery_max_attempts` was reached. If it is False, `failure` is an error that
    a retry cannot repair.
    """

    clean: bool
    failure: BaseException | None = None
    out_of_tries: bool = False

    def exit_code(self) -> int:
        """The exit code for the process. Raises a failure that a retry cannot repair."""
        if self.failure is None:
            return 0 if self.clean else 1
        if not self.out_of_tries:
            raise self.failure
        return GAVE_UP
