"""What is public is written down in docs/api.md, and it is what we mean.

Modules export it, docs and examples use nothing else, docstrings explain it, and attributes that are not for users
begin with an underscore.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.test_readme import EXAMPLES

import queuert

ROOT = Path(__file__).resolve().parent.parent

SECTION = re.compile(r"^## `(?P<module>[\w.]+)`$(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
NAMES = re.compile(r"`(\w+)`")


@cache
def surface() -> dict[str, list[str]]:
    """The public modules and their names, as docs/api.md lists them: in the last column of its tables."""
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    return {
        section["module"]: [
            name
            for line in section["text"].splitlines()
            if line.startswith("| ")
            for name in NAMES.findall(line.rpartition(" | ")[2])
        ]
        for section in SECTION.finditer(page)
    }


@pytest.mark.parametrize("module", surface())
def test_a_module_exports_what_the_page_lists(module: str) -> None:
    exported = import_module(module)
    assert inspect.getdoc(exported), f"{module} has no docstring"
    assert sorted(surface()[module]) == sorted(exported.__all__)
    assert all(hasattr(exported, name) for name in exported.__all__)


# What docs and examples use


def programs() -> dict[str, str]:
    blocks = {example.place: example.code for example in EXAMPLES}
    files = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in (ROOT / "examples").rglob("*.py")}
    return {**blocks, **files}


def private_uses(tree: ast.Module) -> Iterator[str]:
    """What a program takes from the library that is not public."""
    public = surface()
    imported: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in ("queuert", "queuert_django"):
                    imported[alias.asname or alias.name] = alias.name
                    if alias.name not in public:
                        yield f"import {alias.name}"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in (
            "queuert",
            "queuert_django",
        ):
            assert node.module is not None
            yield from (
                f"from {node.module} import {alias.name}"
                for alias in node.names
                if alias.name not in public.get(node.module, ())
            )
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = imported.get(node.value.id)
            if module is not None and node.attr not in public[module] and f"{module}.{node.attr}" not in public:
                yield f"{module}.{node.attr}"
        if isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if owner not in ("self", "cls"):
                yield f"{owner}.{node.attr}"


@pytest.mark.parametrize("place", programs())
def test_docs_and_examples_use_only_what_is_public(place: str) -> None:
    assert list(private_uses(ast.parse(programs()[place]))) == []


def test_private_uses_are_found() -> None:
    tree = ast.parse(
        "import queuert\nimport queuert.ids\nfrom queuert.client.base import Tx\nfrom queuert import Client, Registry\n"
        "queuert.connect(queuert.secret)._run(self._own)\n"
    )
    assert list(private_uses(tree)) == [
        "import queuert.ids",
        "from queuert.client.base import Tx",
        "from queuert import Registry",
        "queuert.secret",
        "._run",
    ]


# Docstrings

MADE_BY_THE_LIBRARY = {
    queuert.AbortSignal,
    queuert.Attempt,
    queuert.BaseAttempt,
    queuert.Chain,
    queuert.Completion,
    queuert.JobRecord,
    queuert.Page,
    queuert.SyncAttempt,
    queuert.SyncCompletion,
    queuert.Transaction,
    queuert.TypeStats,
}
"""Users do not call these constructors, nor those of errors."""

ARGS = re.compile(r"^Args:\n((?:    .*\n?|\n)+)", re.MULTILINE)
ATTRIBUTES = re.compile(r"^Attributes:\n((?:    .*\n?|\n)+)", re.MULTILINE)
ITEM = re.compile(r"^    (\w+): \S", re.MULTILINE)


def items(section: re.Pattern[str], documentation: str | None) -> set[str]:
    found = section.search(documentation or "")
    return set(ITEM.findall(found[1])) if found else set()


def of_the_library(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] in ("queuert", "queuert_django")


def classes() -> dict[str, type]:
    return {
        f"{module}.{name}": value
        for module, names in surface().items()
        for name in names
        if inspect.isclass(value := getattr(import_module(module), name)) and of_the_library(value)
    }


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a user of the class sees, of our own making."""
    seen: set[str] = set()
    for base in cls.__mro__:
        for name, value in vars(base).items() if of_the_library(base) else ():
            if name not in seen and not name.startswith("_"):
                seen.add(name)
                yield name, value


def functions() -> dict[str, Callable[..., Any]]:
    """Every public function and method, by its full name."""
    found: dict[str, Callable[..., Any]] = {}
    for module, names in surface().items():
        for name in names:
            value = getattr(import_module(module), name)
            if inspect.isfunction(value):
                found[f"{module}.{name}"] = value
    for name, cls in classes().items():
        for member, value in members(cls):
            function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            if inspect.isfunction(function):
                found[f"{name}.{member}"] = function
    return found


def parameters(function: Callable[..., Any]) -> set[str]:
    """The names that a caller may use, those of `**options: Unpack[Options]` among them."""
    names: set[str] = set()
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            unpacked = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
            if unpacked:
                names |= inspect.unwrap(function).__globals__[unpacked[1]].__annotations__.keys()
        elif name not in ("self", "cls"):
            names.add(name)
    return names


@pytest.mark.parametrize("name", functions())
def test_a_function_documents_each_of_its_arguments(name: str) -> None:
    function = functions()[name]
    documentation = inspect.getdoc(function)
    assert documentation, "no docstring"
    documented = items(ARGS, documentation)
    if name.startswith("queuert.Observer."):
        # Events share their arguments: the class explains those, the event what is special.
        documented |= items(ARGS, queuert.Observer.__doc__ and inspect.getdoc(queuert.Observer))
        documented |= set(NAMES.findall(documentation))
    assert parameters(function) - documented == set()
    if not name.startswith("queuert.Observer."):
        assert documented - parameters(function) == set(), "documented, but not an argument"


@pytest.mark.parametrize("name", classes())
def test_a_class_documents_its_constructor(name: str) -> None:
    cls = classes()[name]
    assert cls.__doc__, "no docstring"
    made_by_users = cls not in MADE_BY_THE_LIBRARY and not (
        issubclass(cls, BaseException) and cls not in (queuert.JobError, queuert.Reschedule)
    )
    if made_by_users and not getattr(cls, "_is_protocol", False) and "__init__" in dir(cls):
        taken = {
            each
            for each, parameter in inspect.signature(cls).parameters.items()
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        }
        if issubclass(cls, queuert.Job):
            taken = {"name", "queue"}  # of the class statement
        assert items(ARGS, inspect.getdoc(cls)) == taken


# Attributes


def attributes(cls: type) -> Iterator[tuple[str, bool]]:
    """The public data attributes that a class of ours declares or sets, and whether a docstring follows them."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    (node,) = tree.body
    assert isinstance(node, ast.ClassDef)
    bodies = [node.body, *(each.body for each in node.body if isinstance(each, ast.FunctionDef))]
    for body in bodies:
        for statement, following in zip(body, [*body[1:], None], strict=True):
            has_docstring = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            targets = (
                statement.targets
                if isinstance(statement, ast.Assign)
                else [statement.target] if isinstance(statement, ast.AnnAssign) else []
            )  # fmt: skip
            for target in targets:
                for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "self":
                        yield part.attr, has_docstring
                    elif isinstance(part, ast.Name) and body is node.body:
                        yield part.id, has_docstring


@pytest.mark.parametrize("name", classes())
def test_what_a_class_shows_is_explained_or_private(name: str) -> None:
    cls = classes()[name]
    ours = [base for base in cls.__mro__ if of_the_library(base)]
    explained = {
        each
        for base in ours
        for section in (ARGS, ATTRIBUTES)
        for each in items(section, base.__doc__ and inspect.cleandoc(base.__doc__))
    }
    explained |= {each for base in ours for each, has_docstring in attributes(base) if has_docstring}
    shown = {each for base in ours for each, _ in attributes(base) if not each.startswith("_")}
    assert shown - explained == set()
    for member, value in members(cls):
        if isinstance(value, property):
            assert value.__doc__, f"{member} has no docstring"
