"""Archives: which functions are called, with what, and what is known of a chain afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.client.test_keep import complete, store
from tests.support.worlds import World, start

from queuert import (
    ArchivedChain,
    ArchiveTable,
    ChainArchived,
    EntryJob,
    InvalidArgument,
    JsonLines,
    Keep,
    Page,
    read_json_lines,
)

HOUR = 3600.0


class Note(EntryJob[int], name="note"):
    text: str = "a"


class Other(EntryJob[int], name="other", keep=Keep(completed=HOUR)):
    pass


class Recorder:
    """An archive that can fail."""

    def __init__(self) -> None:
        self.chains: list[ArchivedChain] = []
        self.calls = 0
        self.fails = False
        self.place = "a list"

    def __call__(self, tx: Any, chains: Sequence[ArchivedChain]) -> None:
        self.calls += 1
        self.chains += chains
        if self.fails:
            raise RuntimeError("the disk is full")


async def waits_for_nothing(tx: Any, chains: Sequence[ArchivedChain]) -> None:
    pass


def test_what_is_refused(tmp_path: Path) -> None:
    for wrong in ("table", 3, ArchiveTable, JsonLines):
        with pytest.raises(InvalidArgument, match="archive takes a function"):
            Keep(archive=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="completed=0 deletes chains when they are completed"):
        Keep(completed=0, archive=JsonLines(tmp_path))
    for months in (0, -1, 1.5, True, 1201):
        with pytest.raises(InvalidArgument, match="months must be a whole number"):
            ArchiveTable(months=months)  # type: ignore[arg-type]


@pytest.mark.drivers
async def test_a_function_gets_whole_chains_before_they_are_deleted(world: World) -> None:
    archive = Recorder()
    async with world.client([Note, Other], keep=Keep(completed=HOUR, archive=archive)) as client:
        await store(client, "note", "other")
        chains = [await start(client, each) for each in (Note(text="one"), Note(text="two"), Other())]
        for chain in chains:
            await complete(client, chain)
        world.pass_time(HOUR + 1)
        pruned = await client.prune(full=True)
        assert (pruned.chains, pruned.jobs, pruned.waiting) == ({"note": 2, "other": 1}, 3, {})
        assert sorted(chain.id for chain in archive.chains) == sorted(chain.id for chain in chains[:2])
        first = next(each for each in archive.chains if each.id == chains[0].id)
        assert (first.chain_type, first.status, first.jobs[0].input, first.jobs[0].output) == (
            "note",
            "completed",
            {"text": "one"},
            1,
        )
        assert ArchivedChain.from_json(first.to_json()) == first
        for read in (client.get_chain, client.why, client.wait, client.get_archived):
            with pytest.raises(ChainArchived, match=r"\(note, completed\) was archived at .* UTC: a list") as raised:
                await read(chains[0].id)
            assert (raised.value.chain_type, raised.value.status, raised.value.place) == ("note", "completed", "a list")
        with pytest.raises(ChainArchived):
            async with client.transaction() as tx:
                await client.cancel(tx, chains[0])
        assert await client.get_chain(chains[2]) is None
        assert (await client.prune()).deleted == 0


@pytest.mark.drivers
async def test_a_function_that_raises_deletes_nothing(world: World) -> None:
    """Other types are archived all the same. The error is raised, and stored until it works."""
    failing, working = Recorder(), Recorder()
    failing.fails = True

    class First(EntryJob[int], name="a-first", keep=Keep(completed=HOUR, archive=failing)):
        pass

    class Second(EntryJob[int], name="b-second", keep=Keep(completed=HOUR, archive=working)):
        pass

    async with world.client([First, Second]) as client:
        await store(client, "a-first", "b-second")
        first, second = await start(client, First()), await start(client, Second())
        for chain in (first, second):
            await complete(client, chain)
        world.pass_time(HOUR + 1)
        with pytest.raises(RuntimeError, match="the disk is full"):
            await client.prune(full=True)
        assert await client.get_chain(first) is not None
        assert [chain.id for chain in working.chains] == [second.id]
        found = {each.policy.chain_type: each for each in (await client.retention()).types}
        assert (found["a-first"].archive_error, found["a-first"].waiting) == ("RuntimeError: the disk is full", 1)
        assert found["b-second"].archive_error is None
        failing.fails = False
        assert (await client.prune()).chains == {"a-first": 1}
        assert [chain.id for chain in failing.chains] == [first.id, first.id]  # at least once
        found = {each.policy.chain_type: each for each in (await client.retention()).types}
        assert (found["a-first"].archive_error, found["a-first"].waiting) == (None, 0)


async def test_what_the_function_does_with_the_transaction_commits_with_the_deletion(world: World) -> None:
    """Or not at all."""
    if not world.is_async:
        return
    fails = [True, False]

    class Outbox(EntryJob[int], name="outbox"):
        chain: str

    async def archive(tx: Any, chains: Sequence[ArchivedChain]) -> None:
        await client.start_many(tx, [Outbox(chain=chain.id) for chain in chains])
        assert await client.list_chains(Note, tx=tx) == Page([], None)  # they are deleted already
        if fails.pop(0):
            raise RuntimeError("no")

    async with world.client([Note, Outbox], keep=Keep(completed=HOUR, archive=archive)) as client:
        await store(client, "note")
        chain = await start(client, Note())
        await complete(client, chain)
        world.pass_time(HOUR + 1)
        with pytest.raises(RuntimeError, match="no"):
            await client.prune(full=True)
        assert [each.id for each in (await client.list_chains()).items] == [chain.id]
        assert (await client.prune()).deleted == 1
        assert [each.input for each in (await client.list_chains()).items] == [{"chain": chain.id}]


@pytest.mark.drivers
async def test_a_client_without_the_function_leaves_them_alone(world: World) -> None:
    archive = Recorder()
    async with world.client([Note], keep=Keep(completed=HOUR, archive=archive)) as client:
        await store(client, "note")
        chain = await start(client, Note())
        await complete(client, chain)
        world.pass_time(HOUR + 1)
        async with world.client([Other]) as other:
            pruned = await other.prune(full=True)
            assert (pruned.deleted, pruned.waiting) == (0, {"note": 1})
            (found,) = (await other.retention()).types
            assert (found.policy.archived, found.waiting) == (True, 1)
        assert await client.get_chain(chain) is not None
        assert (await client.prune()).chains == {"note": 1}
    assert archive.calls == 1


async def test_async_functions(world: World) -> None:
    """A sync client cannot call one, and leaves its chains to others."""
    async with world.client([Note], keep=Keep(completed=HOUR, archive=waits_for_nothing)) as client:
        await store(client, "note")
        await complete(client, await start(client, Note()))
        world.pass_time(HOUR + 1)
        pruned = await client.prune(full=True)
        assert (pruned.deleted, pruned.waiting) == ((0, {"note": 1}) if not world.is_async else (1, {}))


@pytest.mark.drivers
async def test_the_table(world: World) -> None:
    async with world.client([Note], keep=Keep(completed=HOUR, archive=ArchiveTable(months=3))) as client:
        await store(client, "note")
        chain = await start(client, Note(text="kept"))
        await complete(client, chain)
        assert await client.get_archived(chain) is None
        world.pass_time(HOUR + 1)
        assert (await client.prune(full=True)).deleted == 1
        with pytest.raises(ChainArchived, match="the table queuert_archive"):
            await client.get_chain(chain)
        found = await client.get_archived(chain)
        assert found is not None
        assert (found.id, found.jobs[0].input) == (chain.id, {"text": "kept"})


async def test_json_lines(world: World, tmp_path: Path) -> None:
    async with world.client(
        [Note], keep=Keep(completed=HOUR, archive=JsonLines(tmp_path / "archive", compress=False))
    ) as client:
        await store(client, "note")
        chains = [await start(client, Note(text=str(number))) for number in range(3)]
        for chain in chains:
            await complete(client, chain)
        world.pass_time(HOUR + 1)
        assert (await client.prune(full=True)).deleted == 3
        (file,) = (tmp_path / "archive").iterdir()
        assert sorted(each.id for each in read_json_lines(file)) == sorted(chain.id for chain in chains)
        with pytest.raises(ChainArchived, match=r"files in .*/archive"):
            await client.get_chain(chains[0])
