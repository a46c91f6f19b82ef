"""Finding the worker that `queuert worker` is given, and what is reported if there is none."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from tests.cli.supervising import ROOT, SHOP

from queuert.operate.cli.supervisor.loading import load
from queuert.operate.exits import CommandError

NAME_ONE = "name a Worker, or a function without arguments that returns one"
NOT_FOUND = "it is neither in {root} nor installed, nor on PYTHONPATH"


@pytest.mark.parametrize(
    ("worker", "line"),
    [
        ("nowhere.jobs:worker", f"there is no module 'nowhere': {NOT_FOUND}"),
        ("nowhere.jobs:", f"there is no module 'nowhere': {NOT_FOUND}"),
        ("shop/jobs.py", "'shop/jobs.py' does not name a worker: write package.module:name, like shop.jobs:worker"),
        (f"{SHOP}:staff", f"{SHOP} has no 'staff': did you mean worker?"),
        ("tests.cli.programs.empty", "tests.cli.programs.empty has no 'worker'"),
        (f"{SHOP}:handlers", f"{SHOP}:handlers is a Handlers: {NAME_ONE}"),
        ("queuert:Worker", f"queuert:Worker is the class Worker: {NAME_ONE}"),
        (f"{SHOP}:forgets", f"{SHOP}:forgets() returned None, not a Worker"),
        (
            f"{SHOP}:needs_configuration",
            f"{SHOP}:needs_configuration() failed: KeyError: 'DATABASE_URL' ({{root}}/tests/cli/programs/shop.py:LINE)",
        ),
        ("wrong", "importing wrong failed: SyntaxError: '(' was never closed ({place}/wrong.py:1)"),
        (
            "lacking",
            "importing lacking failed: ModuleNotFoundError: No module named 'stripe_of_nowhere' ({place}/lacking.py:1)",
        ),
    ],
)
async def test_a_worker_that_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worker: str, line: str
) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path, str(tmp_path)])
    monkeypatch.setitem(os.environ, "QUEUERT_TEST_PLACE", str(tmp_path))
    monkeypatch.setitem(os.environ, "QUEUERT_TEST_URL", "memory://")
    (tmp_path / "wrong.py").write_text("worker = (\n")
    (tmp_path / "lacking.py").write_text("import stripe_of_nowhere\n")
    with pytest.raises(CommandError) as caught:
        async with load(worker)():
            pass
    expected = line.format(root=ROOT, place=tmp_path)
    assert re.sub(r"shop.py:\d+\)$", "shop.py:LINE)", str(caught.value)) == expected
    assert caught.value.code == 2
