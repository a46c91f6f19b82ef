"""The text of an error, of limited length.

A message may have millions of lines, and Python's `traceback` goes through all of them. So all
parts are cut before they are formatted. The end is kept, because it contains the message.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any, cast

MAX_TEXT = 10_000
"""Characters that are stored of a text."""


def head(text: str) -> str:
    """The beginning of a text. Of `str` itself: a subclass may do anything."""
    return str(text) if len(text) <= MAX_TEXT else str.__getitem__(text, slice(MAX_TEXT))


def tail(text: str) -> str:
    return str(text) if len(text) <= MAX_TEXT else str.__getitem__(text, slice(-MAX_TEXT, None))


def is_long(error: BaseException) -> bool:
    """Whether its text, or that of an error behind it, is longer than what is stored."""
    return any(_is_long_itself(each) for each in _and_behind(error))


def traceback_of(error: BaseException) -> str:
    """The end of its traceback, and at most a few times `MAX_TEXT`."""
    formatted = traceback.TracebackException.from_exception(error)
    for part in _and_behind(formatted):
        _cut(part)
    return "".join(formatted.format())


def _cut(part: Any) -> None:
    # There is no public name for the message.
    for name in ("_str", "msg", "text"):
        text = getattr(part, name, None)
        if isinstance(text, str):
            setattr(part, name, tail(text))
    notes: Any = part.__notes__
    if isinstance(notes, list | tuple):
        # Only the last ones can be in the text that is kept.
        last = cast("list[Any]", notes[-MAX_TEXT:])
        part.__notes__ = [tail(note) if isinstance(note, str) else note for note in last]


def _is_long_itself(error: BaseException) -> bool:
    texts: list[Any] = [str(error)]
    if isinstance(error, SyntaxError):
        texts.append(error.text)
    notes: Any = getattr(error, "__notes__", ())
    if isinstance(notes, list | tuple):
        texts += notes
    return sum(len(text) for text in texts if isinstance(text, str)) > MAX_TEXT


def _and_behind(error: Any) -> Iterator[Any]:
    """An error, or what `traceback` makes of one, with its causes and the members of groups."""
    seen, waiting = set[int](), [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += (each.__cause__, each.__context__, *(getattr(each, "exceptions", None) or ()))
