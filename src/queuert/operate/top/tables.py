"""Tables that are read again and again, and keep their place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from queuert.operate.terminal import narrow

NARROWEST = 12
"""Columns of a cell that is cut."""


class Table(DataTable[Text]):
    """A table of rows with keys. `show` replaces the rows; the cursor stays on its row."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
        Binding("enter", "select_cursor", "Open"),
    ]

    def __init__(self, *columns: str, flexible: Sequence[str] = (), id: str | None = None) -> None:
        """`flexible`: columns that are cut if the table is wider than the screen."""
        super().__init__(id=id, cursor_type="row", zebra_stripes=True)
        self._titles = columns
        self._flexible = [columns.index(title) for title in flexible]
        self._shown: list[tuple[str, list[str]]] = []
        self._rows: Sequence[tuple[str, Sequence[Text]]] = ()

    def on_mount(self) -> None:
        self.add_columns(*self._titles)

    def on_resize(self) -> None:
        self._fill()

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
        self._rows, self._shown = rows, shown
        self._fill()
        keys = [key for key, _ in shown]
        if chosen in keys:
            self.move_cursor(row=keys.index(chosen), scroll=False)
        self.scroll_to(y=top, animate=False)

    def _fill(self) -> None:
        place = self.cursor_row
        self.clear(columns=True)  # columns do not become narrower by themselves
        for title, width in zip(self._titles, self._widths(), strict=True):
            self.add_column(title, width=width)
        for _, cells in self._rows:
            self.add_row(*cells)
        self.move_cursor(row=place, scroll=False)

    def _widths(self) -> list[int]:
        widths = [
            max(len(title), *(cells[at].cell_len for _, cells in self._rows)) if self._rows else len(title)
            for at, title in enumerate(self._titles)
        ]
        room = self.size.width - 2 * self.cell_padding * len(widths)
        narrow(widths, self._flexible, NARROWEST, room)
        return widths
