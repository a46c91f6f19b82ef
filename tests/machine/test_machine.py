"""Random programs give the same results on every adapter as on the model."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.machine import adapters, postgres
from tests.machine.machine import Factory, StateMachine

SETTINGS = settings(
    deadline=None,
    database=None,
    derandomize=True,
    report_multiple_bugs=False,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)

FACTORIES: dict[str, Factory] = {
    "memory": adapters.memory,
    "sqlite": adapters.sqlite,
    "async_memory": adapters.async_memory,
    "async_sqlite": adapters.async_sqlite,
    "postgres": postgres.postgres,
    "async_postgres": postgres.async_postgres,
    "asyncpg": postgres.asyncpg_postgres,
}
ALWAYS = ("memory", "sqlite", "postgres")
"""Where the operations differ. Programs that run with other drivers are soak."""

EVERY = [pytest.param(name, marks=() if name in ALWAYS else pytest.mark.soak) for name in FACTORIES]

EXAMPLES = {
    "memory": 8,
    "sqlite": 10,
    "async_memory": 5,
    "async_sqlite": 10,
    "postgres": 6,
    "async_postgres": 3,
    "asyncpg": 3,
}
"""How many programs. `make soak` runs so many times more."""
MANY = 140


def machine_on(factory: Factory) -> type[StateMachine]:
    class Machine(StateMachine):
        pass

    Machine.factory = staticmethod(factory)
    return Machine


@pytest.mark.timeout(600)  # a difference is worth the time to find the shortest program that shows it
@pytest.mark.parametrize("name", ALWAYS)
def test_random_programs_give_the_same_results_as_on_the_model(name: str) -> None:
    run_state_machine_as_test(
        machine_on(FACTORIES[name]),
        settings=settings(SETTINGS, max_examples=EXAMPLES[name], stateful_step_count=50),
    )


@pytest.mark.soak
@pytest.mark.parametrize("name", FACTORIES)
def test_many_random_programs_give_the_same_results_as_on_the_model(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    number = int(os.environ.get("QUEUERT_MACHINE_SEED") or random.SystemRandom().getrandbits(32))
    with capsys.disabled():
        print(f"\n{name}: QUEUERT_MACHINE_SEED={number}")  # noqa: T201
    run_state_machine_as_test(
        seed(number)(machine_on(FACTORIES[name])),
        settings=settings(SETTINGS, max_examples=MANY * EXAMPLES[name], stateful_step_count=80, derandomize=False),
    )
