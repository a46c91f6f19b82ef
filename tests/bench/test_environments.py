"""The environments that contenders run in."""

from __future__ import annotations

import pytest
from bench.environments import PEERS, ROOT, python_environment
from bench.process import ContenderFailed


def test_our_own_environment_has_the_versions_of_the_constraints() -> None:
    pins = set((PEERS / "queuert.txt").read_text().split())
    assert pins
    assert pins <= set((ROOT / "constraints.txt").read_text().split())


def test_a_python_that_is_not_there_is_the_reason_why_it_is_not_measured() -> None:
    with pytest.raises(ContenderFailed, match=r"there is no Python 3\.999"):
        python_environment("queuert", "3.999")
