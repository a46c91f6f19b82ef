"""What the operations yield: one function over the data, and whether it changes them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Generic, TypeVar

from queuert.adapters.memory.tables import Tables
from queuert.adapters.memory.view import View

T = TypeVar("T")


class Read(Generic[T]):
    __slots__ = ("function",)

    def __init__(self, function: Callable[[View, datetime], T]) -> None:
        self.function = function


class Write(Generic[T]):
    __slots__ = ("function",)

    def __init__(self, function: Callable[[Tables], T]) -> None:
        self.function = function


Command = Read[T] | Write[T]
