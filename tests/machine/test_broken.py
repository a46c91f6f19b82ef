"""The machine can fail: it finds every adapter that is wrong on purpose."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.machine.broken import BROKEN
from tests.machine.test_machine import SETTINGS, machine_on
from tests.machine.world import Difference

ENOUGH = settings(SETTINGS, max_examples=200, stateful_step_count=50, phases=[Phase.generate])


RARE = ("IgnoresExcludedChains", "FreesJobsThatCameLater", "NeverCascades")
"""It takes hundreds of programs to come across them. The conformance suite finds them at once."""


IN_SOAK = {*BROKEN} - {*list(BROKEN)[::5]} | {*RARE}
"""A few are enough for every change. The conformance suite has wrong adapters of its own."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak if name in IN_SOAK else ()) for name in BROKEN]
)
def test_the_machine_finds_what_is_wrong(name: str) -> None:
    with pytest.raises(Difference):
        enough = settings(ENOUGH, max_examples=1000) if name in RARE else ENOUGH
        run_state_machine_as_test(machine_on(BROKEN[name]), settings=enough)
