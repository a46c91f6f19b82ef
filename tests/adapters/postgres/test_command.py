"""Named parameters become the server's own placeholders."""

from __future__ import annotations

import pytest

from queuert.adapters.postgres.command import PgStatement, compile_text, number_placeholders
from queuert.adapters.sql.statement import Text


@pytest.mark.parametrize(
    ("source", "compiled", "names"),
    [
        ("SELECT 1", "SELECT 1", ()),
        ("SELECT :a, :b", "SELECT $1, $2", ("a", "b")),
        ("SELECT :a, :b, :a", "SELECT $1, $2, $1", ("a", "b")),
        ("SELECT :ids::text[]", "SELECT $1::text[]", ("ids",)),
        ("SELECT :in::text::jsonb", "SELECT $1::text::jsonb", ("in",)),
        ("SELECT now()::date, (:now::timestamptz)", "SELECT now()::date, ($1::timestamptz)", ("now",)),
        ("SELECT (a)::b, c[1]::d", "SELECT (a)::b, c[1]::d", ()),
        ("SELECT list[1:n], list[:a]", "SELECT list[1:n], list[$1]", ("a",)),
        ("SELECT ':no', \"a:b\", 'it''s :no', :yes", "SELECT ':no', \"a:b\", 'it''s :no', $1", ("yes",)),
        ("SELECT 1 -- :no\n, :yes /* :no */", "SELECT 1 -- :no\n, $1 /* :no */", ("yes",)),
        ("DO $$ x := :no $$", "DO $$ x := :no $$", ()),
        ("DO $f$ x := :no; $$ :no $$ $f$; :yes", "DO $f$ x := :no; $$ :no $$ $f$; $1", ("yes",)),
        ("a=:a AND b<=:b_2", "a=$1 AND b<=$2", ("a", "b_2")),
    ],
)
def test_placeholders_are_numbered_and_nothing_else_is_touched(
    source: str, compiled: str, names: tuple[str, ...]
) -> None:
    assert number_placeholders(source) == (compiled, names)


def test_values_stand_in_the_order_of_their_placeholders() -> None:
    text = compile_text(Text("claim.take", "SELECT :b::int, :a::text, :b::int", writes=True))
    assert text(a="x", b=3) == PgStatement("SELECT $1::int, $2::text, $1::int", (3, "x"), writes=True)


@pytest.mark.parametrize("given", [{}, {"a": 1}, {"a": 1, "b": 2, "c": 3}, {"a": 1, "c": 2}])
def test_a_parameter_that_is_missing_or_unknown_is_a_mistake(given: dict[str, int]) -> None:
    text = compile_text(Text("claim.take", "SELECT :a::int, :b::int", writes=False))
    with pytest.raises(LookupError):
        text(**given)


def test_values_spelled_out() -> None:
    """Wherever a placeholder stands and nothing is quoted."""
    text = "SELECT \"a$1\".f($2::text, $1::bigint, '$1''$2') WHERE $2 <> $10"
    values = (-5, "0190-ab_C", *range(3, 11))
    wanted = "SELECT \"a$1\".f('0190-ab_C'::text, '-5'::bigint, '$1''$2') WHERE '0190-ab_C' <> '10'"
    assert PgStatement(text, values).spelled_out() == wanted


LITERALS = {
    "a'b": "'a''b'",
    "a\\'": r"E'a\\'" + "''",
    'a"': "'a\"'",
    "a; é": "'a; é'",
    "": "''",
    None: "NULL",
    True: "'True'",
}


@pytest.mark.parametrize("value", LITERALS)
def test_text_is_quoted(value: bool | str | None) -> None:
    assert PgStatement("SELECT $1", (value,)).spelled_out() == f"SELECT {LITERALS[value]}"


@pytest.mark.parametrize("value", ["a\x00", [1], 1.5])
def test_values_that_cannot_be_spelled_out(value: object) -> None:
    with pytest.raises(ValueError, match="cannot be spelled out"):
        PgStatement("SELECT $1", (value,)).spelled_out()
