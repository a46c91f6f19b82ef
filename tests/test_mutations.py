"""Deliberate bugs in the worker and the client. A part of `make test` must find each of them.

`make test` runs most tests with a few combinations of adapters only (see `tests/support/matrix.py`).
This shows that these combinations are enough. `tests/conformance/test_mutants.py` and
`tests/machine/test_broken.py` do the same for adapters.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"


@dataclass(frozen=True)
class Mutation:
    """A bug: in `file`, `right` becomes `wrong`. One of the `tests` must fail."""

    name: str
    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]

    def applied(self, source: str) -> str:
        number = source.count(self.right)
        if number != 1:
            raise AssertionError(
                f"the bug {self.name!r} no longer fits: its text occurs {number} times in src/queuert/{self.file}, "
                f"not once. Rewrite it for the code as it is now, in tests/test_mutations.py:\n{self.right}"
            )
        return source.replace(self.right, self.wrong)


MUTATIONS = [
    Mutation(
        "a result is settled without its token",
        "worker/attempts/verdict.py",
        "value, token=claim.token, worker=",
        "value, token=None, worker=",
        ("tests/behaviour/test_fence.py", "tests/behaviour/test_settlement.py"),
    ),
    Mutation(
        "a savepoint that is rolled back keeps its notifications",
        "engine/sessions.py",
        "                roll_back()\n",
        "                pass\n",
        ("tests/client/test_transactions.py",),
    ),
    Mutation(
        "leases are not renewed",
        "worker/claims/leases.py",
        "                await self.renew_due()\n",
        "                pass\n",
        ("tests/behaviour/test_leases.py",),
    ),
    Mutation(
        "max_attempts is ignored",
        "worker/attempts/verdict.py",
        "last = gives_up or (plan.max_attempts is not None and _failures(row) + 1 >= plan.max_attempts)",
        "last = gives_up",
        ("tests/behaviour/test_retry.py",),
    ),
    Mutation(
        "errors to give up on are retried",
        "worker/attempts/verdict.py",
        "gives_up = schedule is None and plan.give_up_on.includes(error, code)",
        "gives_up = False",
        ("tests/behaviour/test_giving_up.py",),
    ),
    Mutation(
        "a run that asked for another time costs an attempt",
        "worker/attempts/verdict.py",
        'claim.row.id, token=claim.token, status="pending", uncounted=True, schedule=schedule',
        'claim.row.id, token=claim.token, status="pending", schedule=schedule',
        ("tests/behaviour/test_retry.py",),
    ),
    Mutation(
        "a handler that ended its own chain is rolled back",
        "worker/attempts/transaction.py",
        "if not (settled.applied[0] or self._lock):",
        "if not settled.applied[0]:",
        ("tests/behaviour/test_own_chain.py",),
    ),
    Mutation(
        "the first retry waits as long as the second",
        "base/backoff.py",
        "** (attempt_number - 1)",
        "** attempt_number",
        ("tests/worker/test_backoff.py", "tests/behaviour/test_retry.py"),
    ),
    Mutation(
        "wait does not end with a cancelled chain",
        "client/waiting.py",
        'if chain.status == "cancelled":',
        'if chain.status == "canceled":',
        ("tests/client/test_wait.py", "tests/behaviour/test_wait.py"),
    ),
    Mutation(
        "jobs that are freed later are not announced",
        "engine/operations/unblocking.py",
        "    for unblocked in freed.unblocked:\n",
        "    for unblocked in ():\n",
        ("tests/behaviour/test_many_dependents.py",),
    ),
    Mutation(
        "a poll does not look for dependents to free",
        "worker/run.py",
        "        if available.unblocking:\n",
        "        if False:\n",
        ("tests/behaviour/test_many_dependents.py",),
    ),
    Mutation(
        "a group that cannot be settled blocks all others",
        "worker/attempts/settling.py",
        "            if tries >= TRIES and",
        "            if False and",
        ("tests/behaviour/test_set_aside.py",),
    ),
    Mutation(
        "groups have no limit in bytes",
        "worker/attempts/settling.py",
        "        if size > MAX_BYTES and number:\n",
        "        if False:\n",
        ("tests/behaviour/test_set_aside.py",),
    ),
    Mutation(
        "jobs that become unblocked are not announced",
        "engine/operations/ending.py",
        "    for unblocked in settled.unblocked:\n",
        "    for unblocked in ():\n",
        ("tests/client/test_take_over.py", "tests/behaviour/test_running_changes.py"),
    ),
    Mutation(
        "a job that a shutdown stops is not released",
        "worker/attempts/verdict.py",
        'if reason == "shutdown" and isinstance(error, asyncio.CancelledError):\n',
        'if reason == "shutdown" and isinstance(error, asyncio.CancelledError):\n            return None\n',
        ("tests/behaviour/test_shutdown.py",),
    ),
    Mutation(
        "the deduplication key is dropped",
        "engine/operations/starting.py",
        "dedup=dedup,",
        "dedup=None,",
        ("tests/client/test_start.py", "tests/behaviour/test_deduplication.py"),
    ),
    Mutation(
        "of a group that cannot be settled, one half is forgotten",
        "worker/attempts/settling.py",
        "            await self._settle_group(group[middle:])\n",
        "",
        ("tests/behaviour/test_settlement.py",),
    ),
    Mutation(
        "claims ignore the cap of the cluster",
        "worker/policy/claiming.py",
        "limit, queues, self.cluster_cap, slots",
        "limit, queues, None, slots",
        ("tests/behaviour/test_caps.py",),
    ),
    Mutation(
        "a worker reaps its own jobs",
        "worker/claims/reaping.py",
        "            list(self._attempts.claims),\n            REAPED_AT_ONCE,",
        "            [],\n            REAPED_AT_ONCE,",
        ("tests/behaviour/test_reaper.py",),
    ),
    Mutation(
        "an error of a phase that the handler swallows is forgotten",
        "worker/attempts/ending.py",
        "problem = None if claim.phases is None else claim.phases.problem()",
        "problem = None",
        ("tests/behaviour/test_errors.py",),
    ),
    Mutation(
        "a worker that missed messages does not check its claims",
        "worker/claims/leases.py",
        "suspects = [claim.row.id for claim in claims.values() if claim.active]",
        "suspects = []",
        ("tests/behaviour/test_ownership.py", "tests/brokers/test_working.py", "tests/adapters/postgres"),
    ),
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_bug_fits_the_code(mutation: Mutation) -> None:
    """So that it is noticed in `make test` if the code around a bug changes."""
    compile(mutation.applied(_read(mutation.file)), mutation.file, "exec")


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_bug_is_found(mutation: Mutation, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "src"
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
    (source / "queuert" / mutation.file).write_text(mutation.applied(_read(mutation.file)), "utf-8")
    code, output = _run(source, *mutation.tests)
    assert code == 1, f"no test of {', '.join(mutation.tests)} found the bug (pytest ended with {code}):\n{output}"
    with capsys.disabled():
        found = next((line for line in output.splitlines() if line.startswith(("FAILED tests", "ERROR tests"))), "?")
        print(f"\n{mutation.name}: {found}")  # noqa: T201


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_without_a_bug_the_same_tests_pass() -> None:
    code, output = _run(SOURCE, *sorted({path for mutation in MUTATIONS for path in mutation.tests}))
    assert code == 0, output


def _read(file: str) -> str:
    return (SOURCE / "queuert" / file).read_text("utf-8")


def _run(source: Path, *tests: str) -> tuple[int, str]:
    """What pytest ends with and prints, when it runs tests of `make test` over these sources."""
    where = "import queuert; print(queuert.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(source)}
    found = subprocess.run([sys.executable, "-c", where], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.startswith(str(source)), found.stdout
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not soak", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return finished.returncode, finished.stdout[-20_000:] + finished.stderr[-5_000:]
