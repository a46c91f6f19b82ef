"""The whole suite, twenty times in a row, and all channels with it: a flake is a bug of the product or of the test."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.behaviour.children import ROOT

ROUNDS = 20


@pytest.mark.soak
@pytest.mark.timeout(8 * 3600)
def test_twenty_times_in_a_row(capfd: pytest.CaptureFixture[str]) -> None:
    # Every pair of adapters, also those that `make test` leaves out; not the volume, and not this test itself.
    left_out = ["--deselect", "tests/behaviour/test_cost.py", "--ignore", "tests/behaviour/test_soak.py"]
    channels = [str(path) for path in (ROOT / "tests" / "conformance").glob("test_*notify*.py")]
    suites = ["tests/behaviour", "tests/brokers", *channels]
    command = [sys.executable, "-m", "pytest", *suites, "-q", "-n", "2", *left_out]
    for number in range(1, ROUNDS + 1):
        result = subprocess.run([*command, "-p", "no:cacheprovider"], cwd=ROOT, capture_output=True, text=True)
        with capfd.disabled():
            summary = result.stdout.strip().splitlines()[-1] if result.stdout.strip() else "no output"
            sys.stdout.write(f"\nround {number} of {ROUNDS}: {summary}")
            sys.stdout.flush()
        assert result.returncode == 0, f"round {number} failed:\n{result.stdout[-20_000:]}\n{result.stderr[-5_000:]}"
