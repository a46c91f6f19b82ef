"""The user's worker, from `package.module:name`."""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from queuert.base.contexts import async_context
from queuert.operate.exits import CommandError
from queuert.worker.worker import Worker

OpenWorker = Callable[[], AbstractAsyncContextManager[Worker, None]]

DEFAULT_NAME = "worker"
PATH = "QUEUERT_PATH"
"""The variable that tells a worker process where the supervisor looks for modules."""


def use_path(folders: str) -> None:
    """Look for modules where the supervisor does: in the folder of its script, for example."""
    sys.path[:0] = [each for each in folders.split(os.pathsep) if each and each not in sys.path]


def load(place: str) -> OpenWorker:
    """Import the module, and find the worker or the function that makes it."""
    found = find(place, DEFAULT_NAME)
    if not isinstance(found, Worker) and (not callable(found) or found is Worker):
        raise CommandError(
            f"{place} is {_described(found)}: name a Worker, or a function without arguments that returns one"
        )
    return lambda: _open(place, found)


def find(place: str, default: str) -> Any:
    """Import the module, and find what is named there."""
    module_name, _, path = place.partition(":")
    path = path or default
    if not all(part.isidentifier() for part in (*module_name.split("."), *path.split("."))):
        raise CommandError(f"{place!r} does not name a {default}: write package.module:name, like shop.jobs:{default}")
    module = _import(module_name)
    found: Any = module
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise CommandError(f"{module_name} has no {path!r}{_instead(module)}") from None
    return found


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if not {"", here} & set(sys.path):  # an installed command has its own folder there instead
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise CommandError(
                f"there is no module {error.name!r}: it is neither in {here} nor installed, nor on PYTHONPATH"
            ) from error
        raise _failed(f"importing {name}", error) from error
    except (Exception, SystemExit) as error:
        raise _failed(f"importing {name}", error) from error


@async_context
async def _open(place: str, found: Any) -> AsyncIterator[Worker]:
    """The worker, with its client open."""
    if isinstance(found, Worker):
        async with found.client:
            yield found
        return
    try:
        made = found()
        if inspect.isawaitable(made):
            made = await made
    except CommandError:
        raise
    except Exception as error:
        raise _failed(f"{place}()", error) from error
    if hasattr(made, "__aenter__") and not isinstance(made, Worker):
        async with made as worker, _checked(place, worker).client:
            yield worker
    else:
        async with _checked(place, made).client:
            yield made


def _checked(place: str, made: object) -> Worker:
    if not isinstance(made, Worker):
        raise CommandError(f"{place}() returned {_described(made)}, not a Worker")
    return made


def _instead(module: ModuleType) -> str:
    workers = sorted(name for name, value in vars(module).items() if isinstance(value, Worker))
    return f": did you mean {' or '.join(workers)}?" if workers else ""


def _described(value: object) -> str:
    if value is None:
        return "None"
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def _failed(what: str, error: BaseException) -> CommandError:
    """One line with the place in the user's code."""
    text = " ".join(str(error).split())
    if isinstance(error, SyntaxError):
        where, text = f"{error.filename}:{error.lineno}", error.msg
    else:
        frames = traceback.extract_tb(error.__traceback__)
        where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "?"
    return CommandError(f"{what} failed: {type(error).__name__}: {text} ({where})")
