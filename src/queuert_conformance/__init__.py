"""Cases that every adapter must pass, ours or yours. They need no test framework.

Write a harness for your adapter (`StateHarness`, `NotifyHarness`, `CodecHarness`), run the suite
over it, and read the report. `queuert_conformance.pytest_plugin` makes each case a pytest test.
"""

from __future__ import annotations

from queuert_conformance.checks import CheckFailed, Skipped, check, equal, skip
from queuert_conformance.codec import run_codec_conformance, run_codec_conformance_sync
from queuert_conformance.codec.harness import CodecHarness
from queuert_conformance.notify import run_notify_conformance, run_notify_conformance_sync
from queuert_conformance.notify.harness import NotifyHarness
from queuert_conformance.report import ConformanceFailed, Outcome, Report
from queuert_conformance.state import run_state_conformance, run_state_conformance_sync
from queuert_conformance.state.driver import StateDriver
from queuert_conformance.state.harness import StateHarness

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
