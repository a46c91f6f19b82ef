"""The API reference, one page for each public module, from the docstrings.

Pages are MyST: each object is a directive of Sphinx's Python domain, which makes the types in
signatures links. `**options: Unpack[…]` is written out, so that every keyword is shown.
"""

from __future__ import annotations

import ast
import inspect
import re
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Any

from tools.site.docstrings import Documentation, linked, prose, read
from tools.site.signatures import annotation_text, arguments, default_text, public_objects, scope_of, signatures
from tools.site.surface import Topic, surface, topics

OURS = ("queuert", "queuert_conformance", "queuert_django", "queuert_pytest")
MANY = 50


def directive(kind: str, name: str, body: str, *, depth: int, options: dict[str, str] | None = None) -> str:
    fence = "`" * (7 - depth)
    lines = [f":{key}: {value}".rstrip() for key, value in (options or {}).items()]
    return "\n".join([f"{fence}{{py:{kind}}} {name}", *lines, "", body.strip("\n"), fence, ""])


def fields(documentation: Documentation) -> str:
    lines = [f":param {name.lstrip('*')}: {linked(text)}" for name, text in documentation.items("Args:").items()]
    lines += [f":raises {name}: {linked(text)}" for name, text in documentation.items("Raises:").items()]
    return "\n".join(lines)


def body_of(documentation: Documentation) -> str:
    return f"{prose(documentation.text)}\n\n{fields(documentation)}".strip("\n")


def function_text(kind: str, name: str, function: Callable[..., Any], *, depth: int, modifiers: dict[str, str]) -> str:
    modifiers = {**modifiers, **({"async": ""} if inspect.iscoroutinefunction(inspect.unwrap(function)) else {})}
    body = body_of(read(inspect.getdoc(function)))
    *others, last = signatures(function)
    texts = [
        directive(kind, f"{name}{each}", "", depth=depth, options={**modifiers, **({"no-index": ""} if number else {})})
        for number, each in enumerate(others)
    ]
    options = {**modifiers, **({"no-index": ""} if others else {})}
    return "\n".join([*texts, directive(kind, f"{name}{last}", body, depth=depth, options=options)])


def is_ours(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] in OURS


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a user of the class sees, of our own making."""
    seen: set[str] = set()
    for base in cls.__mro__:
        for name, value in vars(base).items() if is_ours(base) else ():
            if name not in seen and not name.startswith("_"):
                seen.add(name)
                yield name, value


@cache
def class_statements(module: str) -> dict[str, ast.ClassDef]:
    """The classes of a module, by name. `inspect.getsource` would parse the module for each of them."""
    tree = ast.parse(inspect.getsource(import_module(module)))
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def attributes(cls: type) -> dict[str, tuple[str, str]]:
    """The data attributes with a docstring after them: annotation and text, by name."""
    found: dict[str, tuple[str, str]] = {}
    for base in cls.__mro__:
        if not is_ours(base):
            continue
        node = class_statements(base.__module__)[base.__qualname__]
        bodies = [node.body, *(each.body for each in node.body if isinstance(each, ast.FunctionDef))]
        for body in bodies:
            for statement, following in pairwise(body):
                text = documented(following)
                if text is None or not isinstance(statement, ast.Assign | ast.AnnAssign):
                    continue
                annotation = ast.unparse(statement.annotation) if isinstance(statement, ast.AnnAssign) else ""
                for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                    name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "_")
                    if not name.startswith("_"):
                        found.setdefault(name, (annotation, inspect.cleandoc(text)))
    return found


def documented(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        value = statement.value.value
        return value if isinstance(value, str) else None
    return None


def all_annotations(cls: type) -> dict[str, Any]:
    return {
        name: annotation
        for base in reversed(cls.__mro__)
        if is_ours(base)
        for name, annotation in inspect.get_annotations(base).items()
    }


def bases(cls: type) -> str:
    names = [
        linked(f"`{base.__name__}`")
        for base in cls.__bases__
        if id(base) in public_objects() or issubclass(base, BaseException)
    ]
    return f"Bases: {', '.join(names)}" if names else ""


def class_text(module: str, name: str, cls: type) -> str:
    documentation = read(inspect.getdoc(cls))
    parts = [bases(cls), body_of(documentation)]
    annotations = all_annotations(cls)
    shown = attributes(cls)
    for each, text in documentation.items("Attributes:").items():
        shown.setdefault(each, ("", text))
    for each, (annotation, text) in shown.items():
        annotation = annotation or annotations.get(each, "")
        options = {"type": annotation_text(annotation, scope_of(cls))} if annotation else {}
        parts.append(directive("attribute", each, prose(text), depth=1, options=options))
    for each, value in members(cls):
        if each not in shown:
            parts.append(member_text(each, value))
    kind = "exception" if issubclass(cls, BaseException) else "class"
    # A class that is public in two modules has its canonical name in one of them.
    canonical, place = f"{cls.__module__}.{cls.__qualname__}", f"{module}.{name}"
    is_first = public_objects().get(id(cls), place) == place
    options = {"canonical": canonical} if is_first and canonical != place else {}
    heading = name + constructor(cls, documentation)
    return directive(kind, heading, "\n\n".join(part for part in parts if part), depth=0, options=options)


def member_text(name: str, value: Any) -> str:
    if isinstance(value, property):
        getter = value.fget
        assert getter is not None
        returned = inspect.signature(getter).return_annotation
        options = {} if returned is inspect.Signature.empty else {"type": annotation_text(returned, scope_of(getter))}
        return directive("property", name, prose(inspect.getdoc(value) or ""), depth=1, options=options)
    modifiers = {"classmethod": ""} if isinstance(value, classmethod) else {}
    modifiers |= {"staticmethod": ""} if isinstance(value, staticmethod) else {}
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    if inspect.isfunction(function):
        return function_text("method", name, function, depth=1, modifiers=modifiers)
    return ""


def constructor(cls: type, documentation: Documentation) -> str:
    """The arguments of the constructor, if the docstring explains them. Users do not call the others."""
    if not documentation.items("Args:"):
        return ""
    try:
        signature = inspect.signature(cls)
    except (TypeError, ValueError):
        return ""
    if not signature.parameters.keys() & documentation.items("Args:").keys():
        return ""
    return f"({arguments(cls, signature)})"


def data_text(name: str, value: Any, documentation: str) -> str:
    text = annotation_text(value, {}) if typing.get_origin(value) else default_text(value)
    return directive("data", name, f"{prose(documentation)}\n\n`{text}`", depth=0)


def documentation_of(module: str, name: str) -> str:
    """The docstring after an assignment of the module, or of the module that defines the name."""
    origin = import_module(module)
    for _ in range(4):
        tree = ast.parse(inspect.getsource(origin))
        for statement, following in zip(tree.body, [*tree.body[1:], ast.Pass()], strict=True):
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                return inspect.cleandoc(documented(following) or "")
            if isinstance(statement, ast.ImportFrom) and any(name == alias.name for alias in statement.names):
                package = origin.__name__ if hasattr(origin, "__path__") else origin.__name__.rpartition(".")[0]
                for _ in range(statement.level - 1):
                    package = package.rpartition(".")[0]
                origin = import_module(f"{package}.{statement.module}" if statement.level else str(statement.module))
                break
        else:
            return ""
    return ""


def object_text(module: str, name: str) -> str:
    value = getattr(import_module(module), name)
    if inspect.isclass(value):
        return class_text(module, name, value)
    if inspect.isroutine(value):
        return function_text("function", name, value, depth=0, modifiers={})
    return data_text(name, value, documentation_of(module, name))


@dataclass(frozen=True)
class Group:
    """The topics of one page: those that one page of the docs explains."""

    page: str
    title: str
    topics: tuple[Topic, ...]


def groups(module: str) -> list[Group]:
    """A large module has a page for each page of the docs that explains it. A row without a link belongs to the one
    before it, and all errors are together."""
    if len(surface()[module]) < MANY:
        return [Group(module, f"`{module}`", topics()[module])]
    found: dict[str, list[Topic]] = {}
    key = ""
    for topic in topics()[module]:
        link = re.search(r"\]\(([\w/-]+)\.md", topic.about)
        key = "errors" if topic.about.startswith("errors") else link[1] if link else key
        found.setdefault(key, []).append(topic)
    return [Group(f"{module}-{key}", f"`{module}`: {key}", tuple(rows)) for key, rows in found.items()]


def group_text(module: str, group: Group, *, is_first: bool) -> str:
    lines = [f"# {group.title}", "", f"```{{py:{'module' if is_first else 'currentmodule'}}} {module}", "```", ""]
    if is_first:
        lines += [documentation_block(inspect.cleandoc(import_module(module).__doc__ or "")), ""]
    if group.page.endswith("-errors"):
        lines += [documentation_block(inspect.cleandoc(import_module(f"{module}.errors").__doc__ or "")), ""]
    for topic in group.topics:
        lines += [f"## {plain(topic.about)}", ""]
        if "](" in topic.about:
            lines += [f"Explained in {relative(topic.about)}.", ""]
        lines += [object_text(module, name) + "\n" for name in topic.names]
    return "\n".join(lines)


def plain(markdown: str) -> str:
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", markdown)
    return text[0].upper() + text[1:]


def relative(markdown: str) -> str:
    """The first link of a topic, as seen from the folder of the reference."""
    link = re.search(r"\[([^\]]+)\]\(([^)]+)\)", markdown)
    assert link is not None
    return f"[{link[1]}](../{link[2]})"


def documentation_block(text: str) -> str:
    first, _, rest = text.partition("\n\n")
    if not rest:
        return linked(first)
    return f"{linked(first)}\n\n```text\n{rest}\n```" if "──" in rest or "\n    " in rest else prose(text)


SIGNATURES = """## Names in signatures

These are not public names. They stand for:

| name | meaning |
| --- | --- |
| `Conn` | the connection of your driver, for example `sqlite3.Connection` |
| `Tx[Conn]` | a {py:obj}`~queuert.Transaction`; with Django and SQLAlchemy also the connection or the session |
| `E`, `J`, `T` and other single letters | a job class, or the type of its result |
| `= ...` | the argument is optional; its text names the default |
"""


def pages() -> dict[str, str]:
    """The pages of the reference, by name, and their index."""
    texts: dict[str, str] = {}
    lists: list[str] = []
    for module in topics():
        lists.append(f"## `{module}`\n")
        for number, group in enumerate(groups(module)):
            texts[group.page] = group_text(module, group, is_first=number == 0)
            names = ", ".join(f"{{py:obj}}`{name} <{module}.{name}>`" for topic in group.topics for name in topic.names)
            lists.append(f"[{group.title}]({group.page}.md): {names}\n")
    first = "# API reference\n\nEvery public name, with all its arguments, from the docstrings.\n"
    tree = "\n".join(["```{toctree}", ":hidden:", "", *texts, "```", ""])
    return {"index": "\n".join([first, *lists, SIGNATURES, tree]), **texts}
