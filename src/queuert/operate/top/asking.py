"""The question before something is changed. The answer carries a reason, for the audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label, Static, TextArea

from queuert.operate.top.texts import text


@dataclass(frozen=True)
class Field:
    """A line to fill in. It may be left empty."""

    name: str
    label: str
    hint: str


@dataclass(frozen=True)
class Answer:
    reason: str
    value: str
    """What was edited, if something was to be edited."""
    fields: Mapping[str, str]
    """What was filled in, by the names of the fields."""


class Question(ModalScreen[Answer | None]):
    """None: no."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "no", "No")]

    def __init__(
        self,
        title: str,
        explanation: Text,
        button: str,
        *,
        edit: str | None = None,
        fields: Sequence[Field] = (),
        again: Answer | None = None,
        problem: str = "",
    ) -> None:
        """`again`: what was answered before, and `problem`: what was wrong with it."""
        super().__init__()
        self._title = title
        self._explanation = explanation
        self._button = button
        self._edit = edit if edit is None or again is None else again.value
        self._fields = fields
        self._again = again or Answer("", "", {})
        self._problem = problem

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="question"):
            yield Label(self._title, id="question-title", markup=False)
            yield Static(self._explanation)
            if self._edit is not None:
                yield TextArea(self._edit, id="value", language=None)
            for field in self._fields:
                yield Label(field.label, markup=False, classes="label")
                value = self._again.fields.get(field.name, "")
                yield Input(value, placeholder=field.hint, id=f"field-{field.name}")
            yield Label("why? It is kept in the audit, with your name", classes="label")
            yield Input(self._again.reason, placeholder="INC-42: the payment service was down", id="reason")
            yield Static(text(self._problem), id="problem")
            with Horizontal(id="buttons"):
                yield Button(self._button, variant="warning", id="yes")
                yield Button("No", id="no")

    def on_mount(self) -> None:
        if self._edit is not None:
            self.query_one("#value").focus()
        else:
            self.query(Input).first().focus()

    def on_input_submitted(self) -> None:
        self._answer()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        if event.button.id == "yes":
            self._answer()
        else:
            self.dismiss(None)

    def action_no(self) -> None:
        self.dismiss(None)

    def _answer(self) -> None:
        reason = self.query_one("#reason", Input).value.strip()
        if not reason:
            self.query_one("#problem", Static).update("say why: the reason is kept in the audit")
            self.query_one("#reason").focus()
            return
        value = "" if self._edit is None else self.query_one("#value", TextArea).text
        fields = {each.name: self.query_one(f"#field-{each.name}", Input).value.strip() for each in self._fields}
        self.dismiss(Answer(reason, value, fields))
