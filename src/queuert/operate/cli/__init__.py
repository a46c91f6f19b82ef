"""The `queuert` command.

`main` reads the arguments and turns errors into exit codes. Each module of `commands` is one
command, or a few of a kind. `supervisor` runs worker processes.
"""

from queuert.operate.cli.main import main

__all__ = ["main"]
