"""The wheel and the sdist have what they should have, and the wheel works where only it is installed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("queuert", "queuert_conformance", "queuert_django", "queuert_pytest")
NEEDED = ("README.md", "CHANGELOG.md", "LICENSE", "Makefile", "constraints.txt", "pyproject.toml")
FOLDERS = ("docs", "examples", "requirements", "src", "tests", "tools")
LARGEST = 3_000_000
"""Bytes. A file that does not belong there is found by this, and not by a list."""

PROGRAM = """
import queuert
from queuert import EntryJob, Handlers, SyncAttempt
from typing_extensions import assert_type


class Add(EntryJob[int], name="add"):
    x: int


handlers = Handlers()


@handlers.handles(Add)
def add(attempt: SyncAttempt[Add]) -> int:
    return attempt.job.x


async def main() -> None:
    async with queuert.connect("memory://", jobs=[Add]) as client:
        assert_type(await client.wait(await client.submit(Add(x=1))), int)
        Add(x="one")  # E: both checkers must see this
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True)
    return folder


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def files(*folders: str) -> set[str]:
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file())
    return {path.relative_to(ROOT).as_posix() for path in paths if "__pycache__" not in path.parts}


def test_the_wheel_has_every_file_of_the_packages_and_nothing_else(built: Path) -> None:
    wheel = only(built, "*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = {path.removeprefix("src/") for path in files(*(f"src/{package}" for package in PACKAGES))}
    assert names == expected
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    assert wheel.stat().st_size < LARGEST


def test_the_sdist_has_what_the_tests_need(built: Path) -> None:
    sdist = only(built, "*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {path for path in files(*FOLDERS) if not path.endswith((".db", ".db-shm", ".db-wal"))}
    assert wanted | set(NEEDED) <= names
    assert sdist.stat().st_size < LARGEST


def test_the_extras_are_in_one_table() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    rows = [
        line.split("|")[1]
        for line in (ROOT / "docs" / "installation.md").read_text("utf-8").splitlines()
        if "|" in line
    ]
    assert set(re.findall(r"`([\w-]+)`", "".join(rows))) == set(project["optional-dependencies"])


def test_one_version_is_named_everywhere() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"queuert {version}\n" in (ROOT / "docs" / "installation.md").read_text("utf-8")


@pytest.mark.soak
def test_types_are_found_where_only_the_wheel_is_installed(built: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "venv"], cwd=tmp_path, check=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "-qq"]
    subprocess.run([*install, "-c", str(ROOT / "constraints.txt"), str(only(built, "*.whl"))], cwd=tmp_path, check=True)
    said = subprocess.run([python.parent / "queuert", "--version"], cwd=tmp_path, capture_output=True, text=True)
    assert said.stdout.startswith("queuert 0.")

    program = tmp_path / "program.py"
    program.write_text(PROGRAM, "utf-8")
    (line,) = [number for number, text in enumerate(PROGRAM.splitlines(), 1) if "# E:" in text]
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), program.name]
    found = subprocess.run(mypy, cwd=tmp_path, capture_output=True, text=True).stdout
    assert [int(error.split(":")[1]) for error in found.splitlines() if ": error:" in error] == [line], found

    pyright = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", str(python), program.name]
    answer = json.loads(subprocess.run(pyright, cwd=tmp_path, capture_output=True, text=True).stdout)
    errors = [each for each in answer["generalDiagnostics"] if each["severity"] == "error"]
    assert [each["range"]["start"]["line"] + 1 for each in errors] == [line], answer
