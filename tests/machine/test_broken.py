"""The machine can fail: it finds every adapter that is wrong on purpose."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.machine.broken import BROKEN
from tests.machine.test_machine import SETTINGS, machine_on
from tests.machine.world import Difference

ENOUGH = settings(SETTINGS, max_examples=200, stateful_step_count=50, phases=[Phase.generate])


RARE = ("IgnoresExcludedChains",)
"""It takes a hundred programs to come across it. The conformance suite finds it at once."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak if name in RARE else ()) for name in BROKEN]
)
def test_the_machine_finds_what_is_wrong(name: str) -> None:
    with pytest.raises(Difference):
        run_state_machine_as_test(machine_on(BROKEN[name]), settings=ENOUGH)
