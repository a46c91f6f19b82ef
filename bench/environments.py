"""Installs the other libraries from their registries into separate environments under .bench/,
which are kept.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from bench.process import ContenderFailed

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".bench"
PEERS = Path(__file__).resolve().parent / "peers"


def python_environment(name: str, version: str | None = None) -> Path:
    """The interpreter of an environment with the packages of `peers/NAME.txt`.

    `version`: of another Python than the one that runs this, such as "3.13".
    """
    pins = PEERS / f"{name}.txt"
    python = sys.executable if version is None else _find_python(version)
    directory = _directory(name, pins, platform.python_version() if version is None else version)
    interpreter = directory / "bin" / "python"
    if not (directory / "complete").exists():
        shutil.rmtree(directory, ignore_errors=True)
        _call([python, "-m", "venv", "--without-pip", str(directory)])
        _call([sys.executable, "-m", "pip", "--python", str(interpreter), "install", "-qq", "-r", str(pins)])
        (directory / "complete").touch()
    return interpreter


def node_modules() -> Path:
    """A node_modules folder with the packages of `peers/package.json`."""
    if not has_node():
        raise ContenderFailed("Node is not installed")
    package = PEERS / "package.json"
    directory = _directory("node", package, "")
    if not (directory / "complete").exists():
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        shutil.copy(package, directory)
        _call(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"], directory)
        (directory / "complete").touch()
    return directory / "node_modules"


def has_node() -> bool:
    return shutil.which("node") is not None and shutil.which("npm") is not None


def _find_python(version: str) -> str:
    """On PATH, in pyenv, or unpacked by `tools/debian_python`.

    A shim of pyenv may be on PATH without an interpreter behind it.
    """
    unpacked = ROOT / "build" / "python" / version / "usr" / "bin" / f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for candidate in (f"python{version}", *map(str, pyenv.glob(f"versions/{version}.*/bin/python")), str(unpacked)):
        if (found := shutil.which(candidate)) is None:
            continue
        answer = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
        if answer.returncode == 0 and answer.stdout.startswith(f"Python {version}."):
            return found
    raise ContenderFailed(f"there is no Python {version} on PATH or in pyenv: tools/debian_python {version} gets one")


def _directory(name: str, pins: Path, version: str) -> Path:
    """A name that changes with the pinned versions and the interpreter."""
    return CACHE / f"{name}-{hashlib.sha256(pins.read_bytes() + version.encode()).hexdigest()[:12]}"


def _call(command: list[str], cwd: Path = ROOT) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise ContenderFailed(f"not installed: {lines[-1] if lines else command[0]}")
