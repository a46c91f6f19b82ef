"""Cases that every adapter must pass, ours or yours. They need no test framework.

Write a harness for your adapter (`StateHarness`, `NotifyHarness`, `CodecHarness`), run the suite
over it, and read the report. `queuert.conformance.pytest_plugin` makes each case a pytest test.
"""

from __future__ import annotations

from queuert.conformance.checks import CheckFailed, Skipped, check, equal, skip
from queuert.conformance.codec import run_codec_conformance, run_codec_conformance_sync
from queuert.conformance.codec.harness import CodecHarness
from queuert.conformance.notify import run_notify_conformance, run_notify_conformance_sync
from queuert.conformance.notify.harness import NotifyHarness
from queuert.conformance.report import ConformanceFailed, Outcome, Report
from queuert.conformance.state import run_state_conformance, run_state_conformance_sync
from queuert.conformance.state.driver import StateDriver
from queuert.conformance.state.harness import StateHarness

__all__ = [
    "CheckFailed",
    "CodecHarness",
    "ConformanceFailed",
    "NotifyHarness",
    "Outcome",
    "Report",
    "Skipped",
    "StateDriver",
    "StateHarness",
    "check",
    "equal",
    "run_codec_conformance",
    "run_codec_conformance_sync",
    "run_notify_conformance",
    "run_notify_conformance_sync",
    "run_state_conformance",
    "run_state_conformance_sync",
    "skip",
]
