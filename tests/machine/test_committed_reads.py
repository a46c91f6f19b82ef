"""Reads that are no part of an open transaction see what was committed before it, and nothing of what it does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.machine.draws import Draws
from tests.machine.machine import StateMachine
from tests.machine.test_machine import EVERY, FACTORIES, SETTINGS, machine_on
from tests.machine.world import Step


def change(machine: StateMachine, draws: Draws) -> None:
    machine.act(draws.any_change())
    machine.same_data()


def questions(draws: Draws) -> list[Step]:
    asked = [draws.query() for _ in range(4)]
    return [
        *asked,
        *(Step(operation, (where, draws.page())) for operation, where in (draws.listing(), draws.listing())),
    ]


def check_reads_outside(machine: StateMachine, draws: Draws) -> None:
    for _ in range(8):
        change(machine, draws)
    asked = questions(draws)
    before = [machine.both(step, inside=False) for step in asked]
    machine.begin()
    for _ in range(6):
        change(machine, draws)
        assert [machine.both(step, inside=False) for step in asked] == before
    undo = draws.one_in(2)
    inside = [machine.both(step, inside=True) for step in asked]
    machine.end(undo)
    assert [machine.both(step, inside=False) for step in asked] == (before if undo else inside)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", EVERY)
def test_reads_outside_a_transaction_see_what_is_committed(name: str) -> None:
    @settings(SETTINGS, max_examples=5)
    @given(st.data())
    def program(data: st.DataObject) -> None:
        machine = machine_on(FACTORIES[name])()
        try:
            check_reads_outside(machine, Draws(data.draw, machine.known))
        finally:
            machine.teardown()

    program()
