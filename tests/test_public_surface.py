"""What is public is written down in docs/api.md, and it is what we mean.

Modules export it, docs and examples use nothing else, docstrings explain it, and attributes that are not for users
begin with an underscore.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.test_docs import USER_PAGES
from tests.test_readme import EXAMPLES
from tools.site.reference import members
from tools.site.surface import NAMES, surface

import queuert
import queuert.testing
from queuert import logging, why
from queuert.client.base import BaseClient
from queuert.engine.sessions import Sessions
from queuert.features.limits import Unset
from queuert.features.observing.otel.stats import AsyncStats, SyncStats
from queuert.jobs.registry import Registry
from queuert.ports.sync_notify import SyncNotify
from queuert.records.pauses import Everything
from queuert.worker.handlers.middleware import Values

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent

FOR_USERS = (
    "queuert",
    "queuert.why",
    "queuert.sqlalchemy",
    "queuert_django",
    "queuert_django.testing",
    "queuert.testing",
    "queuert.dashboard",
    "queuert.logging",
    "queuert.otel",
)
"""The other public modules are for adapters: their contracts are prose, not lists of arguments."""


@pytest.mark.parametrize("module", surface())
def test_a_module_exports_what_the_page_lists(module: str) -> None:
    exported = import_module(module)
    assert inspect.getdoc(exported), f"{module} has no docstring"
    # A module that also has names for the library itself has no `__all__`: the page is its only list.
    names = getattr(exported, "__all__", surface()[module])
    assert sorted(surface()[module]) == sorted(names)
    assert all(hasattr(exported, name) for name in names)


# What docs and examples use


@cache
def programs() -> dict[str, str]:
    blocks = {example.place: example.code for example in EXAMPLES}
    files = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in (ROOT / "examples").rglob("*.py")}
    return {**blocks, **files}


def is_ours(module: str) -> bool:
    return module.partition(".")[0] in ("queuert", "queuert_conformance", "queuert_django")


def private_uses(tree: ast.Module) -> Iterator[str]:
    """What a program takes from the library that is not public."""
    public = surface()
    imported: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if is_ours(alias.name):
                    imported[alias.asname or alias.name] = alias.name
                    if alias.name not in public:
                        yield f"import {alias.name}"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in (
            "queuert",
            "queuert_django",
        ):
            assert node.module is not None
            for alias in node.names:
                if f"{node.module}.{alias.name}" in public:
                    imported[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                elif alias.name not in public.get(node.module, ()):
                    yield f"from {node.module} import {alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = imported.get(node.value.id)
            if module is not None and node.attr not in public[module] and f"{module}.{node.attr}" not in public:
                yield f"{module}.{node.attr}"
        if isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if owner not in ("self", "cls"):
                yield f"{owner}.{node.attr}"


def test_docs_and_examples_use_only_what_is_public() -> None:
    used = {place: list(private_uses(ast.parse(code))) for place, code in programs().items()}
    assert {place: names for place, names in used.items() if names} == {}


def test_private_uses_are_found() -> None:
    tree = ast.parse(
        "import queuert\nimport queuert.ids\nfrom queuert.client.base import Tx\nfrom queuert import Client, Registry\n"
        "queuert.connect(queuert.secret)._run(self._own)\n"
    )
    assert set(private_uses(tree)) == {
        "import queuert.ids",
        "from queuert.client.base import Tx",
        "from queuert import Registry",
        "queuert.secret",
        "._run",
    }


DOTTED = re.compile(r"`(queuert(?:_django)?(?:\.[a-z]\w*)*)\.([A-Z]\w*)")


def test_names_in_the_text_are_public() -> None:
    """As `queuert.module.NAME`. Codes of checks and the like are no names of a module."""
    named_there = {(page.name, *found) for page in USER_PAGES for found in DOTTED.findall(page.read_text("utf-8"))}
    private = [
        f"{page}: {module}.{name}"
        for page, module, name in sorted(named_there)
        if find_spec(module) and hasattr(import_module(module), name) and name not in surface().get(module, ())
    ]
    assert private == []


# What annotations name


@cache
def scope(module: str) -> dict[str, Any]:
    """The names that annotations of a module may use, those of `if TYPE_CHECKING:` among them."""
    found: dict[str, Any] = {}
    for node in ast.walk(ast.parse(inspect.getsource(import_module(module)))):
        if isinstance(node, ast.ImportFrom) and node.module is not None and is_ours(node.module):
            origin = import_module(node.module)
            found |= {each.asname or each.name: getattr(origin, each.name, None) for each in node.names}
    return {**found, **vars(import_module(module))}


def named(annotation: Any, module: str) -> Iterator[type]:
    """Our classes in an annotation. Aliases are followed, and the keywords of `Unpack[Options]`."""
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        for node in ast.walk(ast.parse(annotation, mode="eval")):
            if isinstance(node, ast.Name):
                yield from named(scope(module).get(node.id), module)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in scope(module):
                yield from named(scope(module)[node.value], module)
    elif typing.is_typeddict(annotation):
        yield from of_fields(annotation)
    elif typing.get_origin(annotation) is not None:
        for part in (typing.get_origin(annotation), *typing.get_args(annotation)):
            yield from named(part, module)
    elif inspect.isclass(annotation) and of_the_library(annotation):
        yield annotation


def of_fields(cls: type) -> Iterator[type]:
    for name, annotation in inspect.get_annotations(cls).items():
        if not name.startswith("_"):
            yield from named(annotation, cls.__module__)


def of_function(function: Callable[..., Any]) -> Iterator[type]:
    function = inspect.unwrap(function)
    for each in typing.get_overloads(function) or [function]:
        for annotation in inspect.get_annotations(each).values():
            yield from named(annotation, function.__module__)


def of_class(cls: type) -> Iterator[type]:
    for base in cls.__mro__:
        if of_the_library(base):
            yield from of_fields(base)
    for _, value in members(cls):
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if inspect.isfunction(function):
            yield from of_function(function)
    make: Any = inspect.getattr_static(cls, "__init__")
    if cls not in MADE_BY_THE_LIBRARY and inspect.isfunction(make):
        yield from of_function(make)


def test_annotations_name_only_what_is_public() -> None:
    """What a function takes or returns, and what a record has. Classes of adapters do what their port says."""
    listed = {id(cls) for cls in (*classes().values(), *NEED_NO_NAME)}
    found = {name: of_function(each) for name, each in functions().items() if name.rpartition(".")[0] in surface()}
    found |= {name: of_class(cls) for name, cls in classes().items() if not name.startswith("queuert.adapters.")}
    missing: dict[str, list[str]] = {}
    for name, named_there in found.items():
        for cls in dict.fromkeys(named_there):
            if id(cls) not in listed and not cls.__name__.startswith("_"):
                missing.setdefault(f"{cls.__module__}.{cls.__qualname__}", []).append(name)
    assert missing == {}, "list them in docs/api.md"


# Docstrings

MADE_BY_THE_LIBRARY = {
    queuert.AbortSignal,
    queuert.ArchivedChain,
    queuert.ArchivedJob,
    queuert.Attempt,
    queuert.AuditRecord,
    queuert.BaseAttempt,
    queuert.BulkPlan,
    queuert.BulkResult,
    queuert.Chain,
    queuert.Completion,
    queuert.Diagnosis,
    queuert.Finding,
    queuert.JobRecord,
    queuert.LimitRow,
    queuert.LimitRule,
    queuert.RateRule,
    queuert.Observer,
    queuert.Page,
    queuert.Pause,
    queuert.PlanNote,
    queuert.SyncAttempt,
    queuert.SyncCompletion,
    queuert.Transaction,
    queuert.FailedAttempt,
    queuert.Pruned,
    queuert.KeepPolicy,
    queuert.Retention,
    queuert.TypeRetention,
    queuert.History,
    queuert.HistoryPoint,
    queuert.Histogram,
    queuert.Vacuumed,
    queuert.TypeStats,
    queuert.Schedule,
    queuert.FailingTick,
    queuert.Why,
    *(getattr(why, name) for name in why.__all__),
    queuert.WorkerInfo,
    queuert.WorkerQueue,
    queuert.WorkerType,
    queuert.WorkerHealth,
    queuert.testing.AttemptResult,
    queuert.testing.Crash,
    queuert.testing.HandlerFailure,
    queuert.testing.Running,
    queuert.testing.Started,
    queuert.testing.SyncRunning,
    logging.JobContext,
}
"""Users do not call these constructors, or without arguments."""

NEED_NO_NAME = (
    BaseClient,  # either client
    Everything,  # the type of EVERYTHING
    Sessions,  # for the library itself
    Registry,  # of a client that is made of the job types of another one
    SyncNotify,
    Unset,  # the type of a default
    Values,
    AsyncStats,  # any client
    SyncStats,
)
"""What is in annotations, but never in a program."""

RAISED_BY_USERS = (queuert.JobError, queuert.Reschedule)

ARGS = re.compile(r"^Args:\n((?:    .*\n?|\n)+)", re.MULTILINE)
ATTRIBUTES = re.compile(r"^Attributes:\n((?:    .*\n?|\n)+)", re.MULTILINE)
ITEM = re.compile(r"^    (\w+): \S", re.MULTILINE)


def items(section: re.Pattern[str], documentation: str | None) -> set[str]:
    found = section.search(documentation or "")
    return set(ITEM.findall(found[1])) if found else set()


def of_the_library(value: Any) -> bool:
    return is_ours(str(getattr(value, "__module__", "")))


@cache
def classes() -> dict[str, type]:
    return {
        f"{module}.{name}": value
        for module, names in surface().items()
        for name in names
        if inspect.isclass(value := getattr(import_module(module), name)) and of_the_library(value)
    }


@cache
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


def is_for_users(name: str) -> bool:
    return name in FOR_USERS or name.rpartition(".")[0] in FOR_USERS


def in_module(module: str, found: dict[str, T]) -> dict[str, T]:
    """Those of classes and functions that belong to a module of the page, and to no longer name of one."""
    longer = [other for other in surface() if other.startswith(f"{module}.")]
    return {
        name: value
        for name, value in found.items()
        if name.startswith(f"{module}.") and not any(name.startswith(f"{other}.") for other in longer)
    }


def test_each_name_belongs_to_a_module() -> None:
    names: dict[str, Any] = {**functions(), **classes()}
    assert sum(len(in_module(module, names)) for module in surface()) == len(names)


@pytest.mark.parametrize("module", surface())
def test_functions_document_each_of_their_arguments(module: str) -> None:
    for name in in_module(module, functions()):
        documents_its_arguments(name)


def documents_its_arguments(name: str) -> None:
    owner = name.rpartition(".")[0]
    function = functions()[name]
    documentation = inspect.getdoc(function)
    if owner.startswith("queuert.adapters.") and owner not in surface():
        return  # methods of adapters do what their port says
    assert documentation, f"{name} has no docstring"
    documented = items(ARGS, documentation)
    if function.__qualname__.startswith("Observer."):
        # Events share their arguments: the class explains those, the event what is special.
        documented = items(ARGS, inspect.getdoc(queuert.Observer)) | set(NAMES.findall(documentation))
        documented &= parameters(function)
    if owner in surface() or is_for_users(owner):
        assert documented == parameters(function), name
    else:
        assert documented <= parameters(function), name


@pytest.mark.parametrize("module", surface())
def test_classes_document_their_constructors(module: str) -> None:
    for name, cls in in_module(module, classes()).items():
        documents_its_constructor(name, cls)


def documents_its_constructor(name: str, cls: type) -> None:
    assert cls.__doc__, f"{name} has no docstring"
    if not is_for_users(name) or cls in MADE_BY_THE_LIBRARY or getattr(cls, "_is_protocol", False):
        return
    if issubclass(cls, BaseException) and cls not in RAISED_BY_USERS:
        return
    if issubclass(cls, queuert.Job):
        taken = {"name", "queue", "keep", "version", "aliases", "limit"}  # of the class statement
    else:
        variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        signature = inspect.signature(cls)
        taken = {each for each, parameter in signature.parameters.items() if parameter.kind not in variable}
    assert items(ARGS, inspect.getdoc(cls)) == taken, name


# Attributes

OTHER_WORDS = {
    "type_name": "job_type, or chain_type for the type that a chain started with",
    "worker": "worker_id",
}
"""What is called otherwise, wherever users see it."""


@cache
def attributes(cls: type) -> tuple[tuple[str, bool], ...]:
    """The public data attributes that a class of ours declares or sets, and whether a docstring follows them."""
    return tuple(_attributes(cls))


def _attributes(cls: type) -> Iterator[tuple[str, bool]]:
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


@pytest.mark.parametrize("module", FOR_USERS)
def test_what_classes_show_is_explained_or_private(module: str) -> None:
    for name, cls in in_module(module, classes()).items():
        explains_what_it_shows(name, cls)


def explains_what_it_shows(name: str, cls: type) -> None:
    ours = [base for base in cls.__mro__ if of_the_library(base)]
    explained = {
        each
        for base in ours
        for section in (ARGS, ATTRIBUTES)
        for each in items(section, inspect.cleandoc(base.__doc__ or ""))
    }
    explained |= {each for base in ours for each, has_docstring in attributes(base) if has_docstring}
    shown = {each for base in ours for each, _ in attributes(base) if not each.startswith("_")}
    assert shown - explained == set(), name
    for member, value in members(cls):
        if isinstance(value, property):
            assert value.__doc__, f"{name}.{member} has no docstring"


def test_one_thing_has_one_name() -> None:
    shown = {
        f"{name}.{each}": OTHER_WORDS[each]
        for name, cls in classes().items()
        if is_for_users(name)
        for base in cls.__mro__
        if of_the_library(base)
        for each, _ in attributes(base)
        if each in OTHER_WORDS
    }
    taken = {
        f"{name}({each}=…)": {"type": "job_type", **OTHER_WORDS}[each]
        for name, function in functions().items()
        if is_for_users(name) or is_for_users(name.rpartition(".")[0])
        for each in parameters(function) & {"type", *OTHER_WORDS}
    }
    assert {**shown, **taken} == {}
