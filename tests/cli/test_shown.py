"""What the command must not show: passwords, and characters that change how text is shown."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.cli.running import in_process, queuert

from queuert import Attempt, EntryJob, Handlers, JobError, Worker, connect
from queuert.operate.terminal import hidden

TURNED = "invoice\u202egpj.exe \u200f\u2067\u061c"
"""It is shown from right to left, where that is not prevented."""


class Charge(EntryJob[None], name="charge"):
    note: str = TURNED


handlers = Handlers()


@handlers.handles(Charge)
async def charge(attempt: Attempt[Charge]) -> None:
    raise JobError("NO", TURNED, retry=False)


async def prepare(url: str, number: int) -> list[str]:
    async with connect(url, jobs=[Charge]) as client:
        async with client.transaction() as tx:
            chains = await client.start_many(tx, [Charge() for _ in range(number)])
        await Worker(client, handlers).drain()
    return [chain.id for chain in chains]


@pytest.mark.parametrize(
    "words",
    [
        ["status", "--url", "host=db user=app password=geheim dbname=shop"],
        ["status", "--url", "host=db user=app password=ge:heim dbname=shop"],
        ["status", "--url", "user=app", "password=geheim"],
        ["ls", "password=geheim", "--url", "sqlite:///x.db"],
        ["status", "--url", "sqlite:///x.db?password=geheim"],
        ["status", "--url", "postgresql://app:geheim@[/x"],
        ["status", "postgresql://app:geheim@db/x"],
        ["health", "--url", "password=geheim"],
    ],
)
def test_no_error_shows_a_password(words: list[str]) -> None:
    ended = in_process(*words)
    assert ended.code in (2, 3)
    assert "geheim" not in ended.err + ended.out
    assert "heim" not in ended.err + ended.out


def test_what_is_hidden() -> None:
    assert hidden("a PASSWORD = 'ge \\'heim' b") == "a PASSWORD = … b"
    assert hidden("x?password=geheim&a=b") == "x?password=…&a=b"
    assert hidden("redis://:geheim@h and postgresql://a:geheim@h") == "redis://:…@h and postgresql://a:…@h"
    assert hidden("sqlite:///a:b@c") == "sqlite:///a:b@c"


def test_text_that_would_be_shown_from_right_to_left(url: str) -> None:
    (chain_id,) = asyncio.run(prepare(url, 1))
    assert queuert("pause", "charge", "--reason", TURNED, "--url", url).code == 0
    for words in (["show", chain_id], ["why", chain_id], ["pause"], ["audit"], ["ls"]):
        for form in ([], ["--json"]):
            shown = queuert(*words, *form, "--url", url)
            assert shown.code == 0
            assert not set(TURNED) & set("\u202e\u200f\u2067\u061c") & set(shown.out), (words, form)
    assert queuert("show", chain_id, "--json", "--url", url).objects[0]["input"] == {"note": TURNED}
    assert "\\u202e" in queuert("pause", "--url", url).out
    assert json.loads(queuert("audit", "--json", "--url", url).lines[0])["reason"] == TURNED


def test_all_chains_are_listed(url: str) -> None:
    asyncio.run(prepare(url, 60))
    assert len(queuert("ls", "--json", "--url", url).lines) == 50
    assert len(queuert("ls", "--all", "--json", "--url", url).lines) == 60
    assert len(queuert("ls", "--all", "--limit", "7", "--json", "--url", url).lines) == 7
