"""Python code in a process of its own, as `python -c` runs it, but forked: see `forking`."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Self

from tests.support.forking import fork


class Code:
    """A process that runs this code. One can write to it, and read what it prints."""

    def __init__(self, code: str, *arguments: str) -> None:
        its_stdin, stdin = os.pipe()
        stdout, its_stdout = os.pipe()
        try:
            self._process = fork(__name__, [code, *arguments], stdin=its_stdin, stdout=its_stdout, stderr=2)
        finally:
            os.close(its_stdin)
            os.close(its_stdout)
        self._stdin = os.fdopen(stdin, "w")
        self._stdout = os.fdopen(stdout)

    def write(self, line: str) -> None:
        self._stdin.write(f"{line}\n")
        self._stdin.flush()

    def readline(self) -> str:
        return self._stdout.readline()

    def end(self) -> tuple[int, str]:
        """How it has ended, and the rest of what it has printed."""
        with self:
            text = self._stdout.read()
            return self._process.wait(60), text

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stdin.close()
        self._stdout.close()
        if error is not None:
            self._process.kill()
        self._process.wait(60)


if __name__ == "__main__":
    code = sys.argv.pop(1)
    exec(compile(code, "<code>", "exec"), {"__name__": "__main__"})
