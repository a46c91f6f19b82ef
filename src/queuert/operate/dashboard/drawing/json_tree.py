"""JSON as something to look at: folded, and cut where it is too much to show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import msgspec

NODES = 400
"""Values of one tree that are shown."""
LONGEST = 2000
"""Characters of one text that are shown."""
CHARACTERS = 40_000
"""Characters of all texts of one tree that are shown."""
DEEPEST = 24
OPEN_UNTIL = 2
"""Levels that are unfolded at first."""
OPEN_SIZE = 12
"""Values of a list or object that is unfolded at first."""

Kind = Literal["object", "list", "text", "number", "word"]


@dataclass
class Node:
    """A value. `key` is its name in an object, or its place in a list."""

    key: str | None
    kind: Kind
    text: str
    children: list[Node] = field(default_factory=list["Node"])
    cut: bool = False
    """Not all of it is shown."""
    is_open: bool = True


@dataclass
class _Budget:
    """What may still be shown."""

    nodes: int = NODES
    characters: int = CHARACTERS


def tree(value: Any) -> Node:
    """What is shown of a value."""
    return _node(None, value, 0, _Budget())


def is_cut(node: Node) -> bool:
    """Whether anything of it is left out."""
    return node.cut or any(map(is_cut, node.children))


def plain(value: Any) -> Any:
    """A value of any class as plain JSON."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=str)


def _node(key: str | None, value: Any, depth: int, budget: _Budget) -> Node:
    budget.nodes -= 1
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return _folded(key, "object", _counted(len(fields), "field"), fields.items(), len(fields), depth, budget)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        items: Sequence[Any] = value  # pyright: ignore[reportUnknownVariableType]
        numbered = ((str(at), each) for at, each in enumerate(items))
        return _folded(key, "list", _counted(len(items), "item"), iter(numbered), len(items), depth, budget)
    if isinstance(value, str):
        room = min(LONGEST, budget.characters)
        budget.characters -= min(len(value), room)
        return Node(key, "text", value[:room], cut=len(value) > room)
    if isinstance(value, bool) or value is None:
        return Node(key, "word", {True: "true", False: "false", None: "null"}[value])
    return Node(key, "number", str(value))


def _folded(
    key: str | None, kind: Kind, text: str, items: Iterator[Any] | Any, size: int, depth: int, budget: _Budget
) -> Node:
    node = Node(key, kind, text, is_open=depth < OPEN_UNTIL and size <= OPEN_SIZE)
    for name, each in items:
        if budget.nodes <= 0 or depth >= DEEPEST:
            node.cut = True
            break
        node.children.append(_node(name, each, depth + 1, budget))
    return node


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
