"""Run the tests that failed three times more, each alone, to tell which of them are unstable.

    python tools/repeat_failed.py

A test that failed and then passed is a bug, in the product or in the test: the end of the output
names it. Exits with 0 only if all that failed is unstable, and known to be so: `tests/unstable.txt`
has one test in a line, and after " # " the suspected cause.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FAILED = Path(".pytest_cache/v/cache/lastfailed")
KNOWN = Path("tests/unstable.txt")
MOST = 10
ROUNDS = 3


def main() -> int:
    failed: list[str] = list(json.loads(FAILED.read_text())) if FAILED.exists() else []
    known = read(KNOWN.read_text("utf-8"))
    if not 0 < len(failed) <= MOST:
        print(f"{len(failed)} tests failed: only 1 to {MOST} are run again.")
        return 1
    unstable = [test for test in failed if all(passes(test) for _ in range(ROUNDS))]
    for test in failed:
        if test not in unstable:
            print(f"FAILED AGAIN: {test}")
        elif test in known:
            print(f"UNSTABLE, known: {test} # {known[test]}")
        else:
            print(f"UNSTABLE, not in {KNOWN}: {test}")
    return 0 if all(test in unstable and test in known for test in failed) else 1


def read(text: str) -> dict[str, str]:
    """Tests that are known to be unstable, with the suspected cause of each."""
    known: dict[str, str] = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            test, separator, cause = line.partition(" # ")
            if not (separator and cause.strip()):
                raise SystemExit(f"{KNOWN}: a test needs its suspected cause, after ' # ': {line}")
            known[test.strip()] = cause.strip()
    return known


def passes(test: str) -> bool:
    return (
        subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test], check=False).returncode
        == 0
    )


if __name__ == "__main__":
    sys.exit(main())
