"""The scripts around the tests: what is said of failed and skipped tests, and which unstable ones are let pass."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tools.repeat_failed import read

ROOT = Path(__file__).resolve().parent.parent
REPEAT = ROOT / "tools" / "repeat_failed.py"

TESTS = """
from pathlib import Path

import pytest

def test_good():
    pass

def test_unstable():
    runs = Path("runs")
    runs.write_text(runs.read_text() + "." if runs.exists() else ".")
    assert len(runs.read_text()) > 1

@pytest.mark.parametrize("word", ["two words"])
def test_bad(word):
    assert False

@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.skip("memory has no statements")
def test_on_purpose(number):
    pass

@pytest.mark.skip("PgBouncer is missing: apt-get install pgbouncer")
def test_left_out():
    pass
"""


class Project:
    """Four tests in a directory, one of which fails only the first time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        (directory / "tests").mkdir()
        (directory / "tests" / "test_it.py").write_text(TESTS)
        (directory / "pytest.ini").write_text("[pytest]\naddopts = -rfE\n")
        self.know("# known\n")

    def know(self, text: str) -> None:
        (self._directory / "tests" / "unstable.txt").write_text(text)

    def test(self, *arguments: str) -> str:
        return self._run("-m", "pytest", "-p", "tests.support.summary", *arguments).stdout

    def repeat(self) -> tuple[int, list[str]]:
        """The exit code, and what is said of each test."""
        done = self._run(str(REPEAT))
        return done.returncode, [line for line in done.stdout.splitlines() if line.startswith(("UNSTABLE", "FAILED A"))]

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        for name in [name for name in environment if name.startswith("PYTEST_XDIST") or name == "PYTEST_ADDOPTS"]:
            del environment[name]
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self._directory,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


UNSTABLE = "tests/test_it.py::test_unstable"
BAD = "tests/test_it.py::test_bad[two words]"


def test_an_unstable_test_that_nobody_knows_fails_the_run(project: Project) -> None:
    project.test("-k", "good or unstable")
    assert project.repeat() == (1, [f"UNSTABLE, not in tests/unstable.txt: {UNSTABLE}"])


def test_an_unstable_test_that_is_known_does_not(project: Project) -> None:
    project.know(f"# known\n{UNSTABLE} # it counts its runs\n")
    project.test("-k", "good or unstable")
    assert project.repeat() == (0, [f"UNSTABLE, known: {UNSTABLE} # it counts its runs"])


def test_a_test_that_fails_again_fails_the_run(project: Project) -> None:
    project.know(f"{BAD} # none\n{UNSTABLE} # it counts its runs\n")
    project.test()
    code, said = project.repeat()
    assert code == 1
    assert sorted(said) == [f"FAILED AGAIN: {BAD}", f"UNSTABLE, known: {UNSTABLE} # it counts its runs"]


def test_a_run_that_failed_without_a_failed_test(project: Project) -> None:
    project.test("-k", "good")
    assert project.repeat() == (1, [])


def test_a_known_test_needs_a_cause(project: Project) -> None:
    project.know(f"{UNSTABLE}\n")
    project.test("-k", "unstable")
    assert project.repeat() == (1, [])


def test_our_list_of_unstable_tests_names_tests_that_exist() -> None:
    for test in read((ROOT / "tests" / "unstable.txt").read_text("utf-8")):
        file, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text("utf-8"), test


def test_the_end_of_a_run(project: Project) -> None:
    ending = project.test().partition("short test summary info")[2].splitlines()[1:-1]
    assert ending[-4:] == [
        f"To run it alone: .venv/bin/python -m pytest {UNSTABLE}",
        f"To run it alone: .venv/bin/python -m pytest '{BAD}'",
        "Skipped on purpose: 2 × memory has no statements.",
        "Left out, because this machine lacks something: 1 tests need PgBouncer (apt-get install pgbouncer).",
    ]
    assert not any("SKIPPED" in line for line in ending)


def test_the_end_of_a_good_run_has_nothing_to_say(project: Project) -> None:
    assert "alone" not in (said := project.test("-k", "good"))
    assert "lacks" not in said


class Bare:
    """Our scripts in a directory of their own, on a machine that has only what a test puts there."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for script in (".ci/run", "tools/postgres_server", "tools/debian_python", "tools/try_python"):
            (directory / script).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / script, directory / script)
        (directory / "bin").mkdir()
        for name in ("bash", "dirname", "timeout"):
            (directory / "bin" / name).symlink_to(str(shutil.which(name)))

    def put(self, script: str, text: str) -> None:
        path = self._directory / script
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{text}\n")
        path.chmod(0o755)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": str(self._directory / "bin"), "HOME": str(self._directory)}
        arguments = ["bash", *command]
        return subprocess.run(
            arguments, cwd=self._directory, env=environment, capture_output=True, text=True, check=False
        )


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    return Bare(tmp_path)


def test_a_server_that_cannot_be_had(bare: Bare) -> None:
    done = bare.run("tools/postgres_server", "14")
    assert (done.returncode, done.stdout) == (1, "")
    assert "PostgreSQL 14: not tried, npm is missing" in done.stderr
    assert "14 to 18, not '13'" in bare.run("tools/postgres_server", "13").stderr


def test_a_python_that_cannot_be_had_is_left_out(bare: Bare) -> None:
    done = bare.run("tools/try_python", "3.14")
    assert done.returncode == 0, done.stderr
    assert "Python 3.14: not tried" in done.stdout
    assert "there is no apt-get" in done.stderr


@pytest.mark.parametrize(
    ("failing", "repeat", "code"),
    [
        ("nothing", 1, 0),
        ("test", 0, 0),
        ("test", 1, 1),
        ("test-postgres", 0, 0),
        ("test-postgres", 1, 1),
        ("check", 0, 1),
    ],
)
def test_what_fails_a_run(bare: Bare, failing: str, repeat: int, code: int) -> None:
    bare.put("bin/make", f'[ "$1" != {failing} ]')
    bare.put(".venv/bin/python", f'[ "$1" != tools/repeat_failed.py ] || exit {repeat}')
    for script in ("install_browser", "postgres_server", "try_python"):
        bare.put(f"tools/{script}", "echo $0")
    assert bare.run(".ci/run").returncode == code
