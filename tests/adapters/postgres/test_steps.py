"""SQL that can be reviewed: how long functions are, and what the steps of operations may be."""

from __future__ import annotations

import re
from typing import NamedTuple

import psycopg

from queuert.adapters.postgres.installation import STEADY, Installation, functions_for
from queuert.adapters.sql.statement import sql_files

LINES, VARIABLES = 150, 25

ONE_SNAPSHOT = {
    "add_fine", "blockers_of", "claimed_jobs", "expand", "held_by", "lane_holder", "lane_weight", "limit_rule",
    "look_again",
    "next_limit", "own_rule", "pending_jobs", "stops_lane", "waits_for",
}  # fmt: skip
"""Steps that only read, in the snapshot of the statement that calls them."""

OWN_PLAN = {
    "first_jobs", "held_by", "keep_handled", "lapsed", "next_jobs", "passed", "pauses_of", "pending_jobs",
    "resting_chains",
    "resting_jobs", "resting_types", "typed_jobs", "worker_locks",
}  # fmt: skip
"""Steps with settings: their plans must differ from those of their callers, or callers have none."""

RELEASING = {"lock_current", "lock_jobs", "wait_for"}
"""Steps that release locks and take them again. None of them calls another one inside of its block, except `wait_for`,
after the block was rolled back."""

IN_SQL = {"add_fine", "blockers_of", "claimed_jobs", "expand", "look_again", "worker_locks"}
"""Steps that become a part of the statement that calls them."""


class Function(NamedTuple):
    name: str
    comment: str
    head: str
    body: str

    @property
    def lines(self) -> int:
        return len((self.head + self.body).splitlines())

    @property
    def variables(self) -> int:
        """Those of its DECLARE. Parameters and results are not counted: their number is that of the call."""
        declared = re.search(r"^DECLARE\n(.*?)^BEGIN$", self.body, re.MULTILINE | re.DOTALL)
        return len(re.findall(r"^    [a-z]\w* (?!:=).*?;", declared[1], re.MULTILINE | re.DOTALL)) if declared else 0


def functions() -> list[Function]:
    found = []
    for _, text in sql_files("queuert.adapters.postgres.functions"):
        for comment, head, body in re.findall(
            r"((?:^--[^\n]*\n)*)(^CREATE OR REPLACE FUNCTION .*?AS )(\$body\$.*?\$body\$;)$",
            text,
            re.MULTILINE | re.DOTALL,
        ):
            name = re.search(r"{(\w+)}", head)
            assert name
            found.append(Function(name[1], comment, head, body))
    return found


def steps() -> list[Function]:
    """The functions that only other functions call."""
    statements = "".join(text for _, text in sql_files("queuert.adapters.postgres.statements"))
    called = set(re.findall(r"{(\w+)}\(", statements))
    return [each for each in functions() if each.name not in called]


def test_functions_are_short() -> None:
    assert len(functions()) == len(functions_for(Installation("public", "queuert_")).names)
    assert {each.name: each.lines for each in functions() if each.lines > LINES} == {}
    assert {each.name: each.variables for each in functions() if each.variables > VARIABLES} == {}
    assert max(each.variables for each in functions()) > VARIABLES / 2, "variables are counted"


def test_steps_see_what_was_committed_before_each_of_their_statements() -> None:
    stable = {each.name for each in steps() if re.search(r"\b(STABLE|IMMUTABLE)\b", each.head)}
    assert stable <= ONE_SNAPSHOT
    assert {each.name for each in steps() if "LANGUAGE plpgsql" not in each.head} <= IN_SQL


def test_steps_have_no_settings() -> None:
    assert {each.name for each in steps() if re.search(r"\sSET |{steady}", each.head)} <= OWN_PLAN


def test_steps_catch_nothing() -> None:
    assert {each.name for each in steps() if re.search(r"\bEXCEPTION\b", each.body)} <= RELEASING


def test_comments_say_what_is_locked() -> None:
    assert [each.name for each in functions() if not each.comment] == []
    locking = [each for each in functions() if re.search(r"\bFOR (NO KEY )?(UPDATE|SHARE)\b|_advisory_", each.body)]
    assert len(locking) > 20
    assert [each.name for each in locking if not re.search(r"\b[Ll]ock|\b[Ww]ait", each.comment)] == []


def test_the_answer_of_a_claim_is_read_in_its_own_statement(migrated_url: str) -> None:
    """The server inlines the function. If it did not, each job would be copied once more."""
    name = f"queuert_claimed_jobs_{functions_for(Installation('public', 'queuert_')).digest}"
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        for setting in STEADY.removeprefix("SET ").split(" SET "):
            connection.execute(f"SET {setting}".encode())
        plan = connection.execute(f"EXPLAIN SELECT * FROM {name}('{{}}', 1, NULL, NULL, now())".encode())
        lines = [line for (line,) in plan.fetchall()]
    assert any("Index Scan using queuert_job_pkey" in line for line in lines)
    assert not any(f"Function Scan on {name}" in line for line in lines)
