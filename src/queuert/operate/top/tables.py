"""Tables that are read again and again, and keep their place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import DataTable


class Table(DataTable[Text]):
    """A table of rows with keys. `show` replaces the rows; the cursor stays on its row."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
        Binding("enter", "select_cursor", "Open"),
    ]

    def __init__(self, *columns: str, id: str | None = None) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=True)
        self._titles = columns
        self._shown: list[tuple[str, list[str]]] = []

    def on_mount(self) -> None:
        self.add_columns(*self._titles)

    @property
    def chosen(self) -> str | None:
        """The key of the row with the cursor."""
        return self._shown[self.cursor_row][0] if 0 <= self.cursor_row < len(self._shown) else None

    def show(self, rows: Sequence[tuple[str, Sequence[Text]]]) -> None:
        """`rows`: keys and cells."""
        shown = [(key, [cell.markup for cell in cells]) for key, cells in rows]
        if shown == self._shown:
            return
        chosen, top = self.chosen, self.scroll_y
        self.clear(columns=True)  # columns do not become narrower by themselves
        self.add_columns(*self._titles)
        for _, cells in rows:
            self.add_row(*cells)
        self._shown = shown
        keys = [key for key, _ in shown]
        if chosen in keys:
            self.move_cursor(row=keys.index(chosen), scroll=False)
        self.scroll_to(y=top, animate=False)
