"""Exit codes, and errors that end the command with one. docs/cli.md lists them: they are stable."""

from __future__ import annotations

DONE = 0
NOT_DONE = 1
"""Refused, not confirmed, or only partly done."""
USAGE = 2
"""Wrong arguments: also an id that does not exist, or a worker that cannot be imported."""
DATABASE = 3
"""The database cannot be used."""
LEFT = 4
"""`worker --until-empty`: no job can run now, and some are left."""
INTERRUPTED = 130
"""Ctrl-C."""
CLOSED_PIPE = 141
"""The reader of the output has gone, as with `| head`."""


class CommandError(Exception):
    """Ends the command with one line on stderr."""

    def __init__(self, message: str, code: int = USAGE) -> None:
        super().__init__(message)
        self.code = code
