"""The whole suite, twenty times in a row, and all channels with it: a flake is a bug of the product or of the test."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.behaviour.children import ROOT
from tests.behaviour.conftest import PAIRS

ROUNDS = 20


CHANNELS = [str(path) for path in (ROOT / "tests" / "conformance").glob("test_*notify*.py")]
NAMES = [f"{state}+{notify or 'polling'}" for state, notify in PAIRS]
PARTS = {
    **{name: ["tests/behaviour", "-k", name] for name in NAMES},
    "no pair": ["tests/behaviour", "tests/brokers", *CHANNELS, "-k", f"not ({' or '.join(NAMES)})"],
}
"""Each pair of adapters, also those that `make test` leaves out, and what is about the channels alone."""

LEFT_OUT = ["--deselect", "tests/behaviour/test_cost.py", "--ignore", "tests/behaviour/test_soak.py"]
"""Not the volume, and not this test itself."""


@pytest.mark.soak
@pytest.mark.timeout(8 * 3600)
@pytest.mark.parametrize("part", PARTS)
def test_twenty_times_in_a_row(part: str, capfd: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "pytest", *PARTS[part], "-q", "-n", "2", *LEFT_OUT, "-p", "no:cacheprovider"]
    for number in range(1, ROUNDS + 1):
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        with capfd.disabled():
            summary = result.stdout.strip().splitlines()[-1] if result.stdout.strip() else "no output"
            sys.stdout.write(f"\n{part}, round {number} of {ROUNDS}: {summary}")
            sys.stdout.flush()
        assert result.returncode == 0, f"round {number} failed:\n{result.stdout[-20_000:]}\n{result.stderr[-5_000:]}"
