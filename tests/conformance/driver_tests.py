"""The state suite for a driver whose operations are checked in full with another driver."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.matrix import Soak

from queuert_conformance import StateHarness
from queuert_conformance.case import DRIVER
from queuert_conformance.pytest_plugin import state_tests
from queuert_conformance.runner import Factory

TRANSACTIONS = ("transactions", "isolation", "concurrency*", "abandoning")
"""Families of cases: about how transactions begin, end, and meet others."""


def add_driver_tests(tests: dict[str, Any], **harnesses: Factory[StateHarness]) -> None:
    """Add tests for each harness to a module.

    `make test` runs the cases that a driver can fail, `make soak` all cases.
    """
    for name, harness in harnesses.items():
        tests[f"test_{name}"] = state_tests(harness, only=DRIVER)
        add_soak_tests(tests, **{f"all_{name}": harness})


def add_transaction_tests(tests: dict[str, Any], **harnesses: Factory[StateHarness]) -> None:
    """The same for a driver that can only get transactions wrong: `make test` runs the cases about those."""
    for name, harness in harnesses.items():
        tests[f"test_{name}"] = state_tests(harness, only=TRANSACTIONS)
        add_soak_tests(tests, **{f"all_{name}": harness})


def add_soak_tests(tests: dict[str, Any], **harnesses: Factory[StateHarness]) -> None:
    """Add tests of all cases to a module, for `make soak` only."""
    if Soak.is_collected:
        for name, harness in harnesses.items():
            tests[f"test_{name}"] = pytest.mark.soak(state_tests(harness))
