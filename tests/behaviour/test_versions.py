"""Inputs of older and newer versions, earlier names, and fields that only newer code knows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import eventually

from queuert import (
    Attempt,
    Chain,
    Client,
    DuplicateJobType,
    EntryJob,
    Handlers,
    InvalidJobType,
    JobTypeMismatch,
    JobTypeValidationError,
    Worker,
)

pytestmark = pytest.mark.in_turn


class Version1:
    """The code before."""

    class Charge(EntryJob[str], name="charge"):
        euros: int


class Version2:
    """Its field was renamed, and counts in another unit."""

    class Charge(EntryJob[str], name="charge", version=2):
        cents: int

        @classmethod
        def upgrade(cls, data: dict[str, Any], version: int) -> dict[str, Any]:
            assert version == 1
            return {"cents": data.pop("euros") * 100, **data}


class Version3:
    """It was renamed, and got one more field."""

    class Charge(EntryJob[str], name="charge-card", version=3, aliases=["charge"]):
        cents: int
        currency: str

        @classmethod
        def upgrade(cls, data: dict[str, Any], version: int) -> dict[str, Any]:
            if version < 2:
                data["cents"] = data.pop("euros") * 100
            return {**data, "currency": "EUR"}


def handlers_for(job_class: Any, seen: list[str]) -> Handlers[Any]:
    handlers = Handlers[Any](max_attempts=1)

    @handlers.handles(job_class)
    async def charge(attempt: Attempt[Any]) -> str:
        seen.append(f"{attempt.job_type}: {attempt.job}")
        return "paid"

    return handlers


async def run_all(client: Client[Any], setting: Setting, job_class: Any, number: int) -> list[str]:
    seen: list[str] = []
    async with Worker(client, handlers_for(job_class, seen), poll_interval=setting.poll_interval):
        await eventually(lambda: len(seen) >= number)
    return sorted(seen)


async def test_a_worker_runs_older_versions_and_leaves_newer_ones_alone(setting: Setting) -> None:
    async with setting.connect([Version1.Charge]) as client:
        old = await client.submit(Version1.Charge(euros=1))
    async with setting.connect([Version2.Charge]) as client:
        new = await client.submit(Version2.Charge(cents=200))
        assert new.chain_type == "charge@2"
    async with setting.connect([Version1.Charge]) as client:
        another = await client.submit(Version1.Charge(euros=3))
        seen = await run_all(client, setting, Version1.Charge, 2)
        assert seen == ["charge: Version1.Charge(euros=1)", "charge: Version1.Charge(euros=3)"]
        left = await client.get_chain(new)
        assert left is not None
        assert left.status == "pending", "this code does not know the version"
        assert {old.id, another.id} == {chain.id for chain in (await client.list_chains(Version1.Charge)).items}
    async with setting.connect([Version2.Charge]) as client:
        assert await run_all(client, setting, Version2.Charge, 1) == ["charge@2: Version2.Charge(cents=200)"]


async def test_old_inputs_are_upgraded_and_old_names_are_known(setting: Setting) -> None:
    async with setting.connect([Version1.Charge]) as client:
        first = await client.submit(Version1.Charge(euros=1))
    async with setting.connect([Version2.Charge]) as client:
        second = await client.submit(Version2.Charge(cents=200))
    async with setting.connect([Version3.Charge]) as client:
        third = await client.submit(Version3.Charge(cents=300, currency="USD"))
        assert len((await client.list_chains(Version3.Charge)).items) == 3
        record = await client.get_job(first.id, Version3.Charge)
        assert record is not None
        assert record.job == Version3.Charge(cents=100, currency="EUR")
        assert record.input == {"euros": 1}, "the row itself is not changed"
        assert await run_all(client, setting, Version3.Charge, 3) == [
            "charge-card@3: Version3.Charge(cents=300, currency='USD')",
            "charge: Version3.Charge(cents=100, currency='EUR')",
            "charge@2: Version3.Charge(cents=200, currency='EUR')",
        ]
        for chain in (first, second, third):
            assert await client.wait(chain.id, Version3.Charge, timeout=45) == "paid"


async def test_pausing_a_type_pauses_all_its_versions(setting: Setting) -> None:
    async with setting.connect([Version1.Charge]) as client:
        old = await client.submit(Version1.Charge(euros=1))
    async with setting.connect([Version2.Charge]) as client:
        await client.submit(Version2.Charge(cents=200))
        async with client.transaction() as tx:
            await client.pause(tx, Version2.Charge)
        assert {pause.target.name for pause in await client.list_pauses()} == {"charge", "charge@2"}
        async with client.transaction() as tx:
            assert await client.resume(tx, Version2.Charge) is not None
        assert await client.list_pauses() == []
        assert len(await run_all(client, setting, Version2.Charge, 2)) == 2
        assert await client.wait(old.id, Version2.Charge, timeout=45) == "paid"


async def test_fields_that_only_newer_code_knows_survive(setting: Setting) -> None:
    class Poll(EntryJob[str, "Poll"], name="poll"):
        url: str
        tries: int = 0

    class PollWithToken(EntryJob[str], name="poll"):
        url: str
        tries: int = 0
        token: str | None = None

    handlers = Handlers[Any]()

    @handlers.handles(Poll)
    async def poll(attempt: Attempt[Poll]) -> str | Poll:
        return attempt.job.set(after=0) if attempt.job.tries == 0 and attempt.chain_id == attempt.job_id else "done"

    async with setting.connect([PollWithToken]) as client:
        chain = await client.submit(PollWithToken(url="https://example.org", token="secret"))
    async with (
        setting.connect([Poll]) as client,
        Worker(client, handlers, poll_interval=setting.poll_interval),
    ):
        await client.wait(chain.id, timeout=45)
        jobs = (await client.list_chain_jobs(chain.id)).items
        assert [job.input["token"] for job in jobs] == ["secret", "secret"], "an older worker has passed it on"


# What is refused


class BeforeMail:
    """The code before."""

    class Person(msgspec.Struct):
        name: str

    class Greet(EntryJob[str, "Greet"], name="greet"):
        to: list[Chain[Version1.Charge]]
        person: BeforeMail.Person
        tags: list[str]
        others: dict[str, BeforeMail.Person]
        again: bool = True


class WithMail:
    """A value in the input has one more field."""

    class Person(msgspec.Struct):
        name: str
        mail: str

    class Greet(EntryJob[str, "Greet"], name="greet"):
        to: list[Chain[Version1.Charge]]
        person: WithMail.Person
        tags: list[str]
        others: dict[str, WithMail.Person]
        again: bool = True


async def test_so_do_those_of_values_in_its_fields(setting: Setting) -> None:
    ann, bob = WithMail.Person("Ann", "ann@example.org"), WithMail.Person("Bob", "bob@example.org")
    jobs = [Version1.Charge, WithMail.Greet]
    async with setting.connect(jobs) as client:
        charge = await client.submit(Version1.Charge(euros=1))
        chain = await client.submit(WithMail.Greet(to=[charge], person=ann, tags=[], others={"b": bob}))
    handlers = Handlers[Any]()

    @handlers.handles(BeforeMail.Greet)
    async def greet(attempt: Attempt[Any]) -> Any:
        if attempt.chain_id == attempt.job_id:
            attempt.job.tags.append("late")
            return attempt.job.set(after=0)
        return "done"

    @handlers.handles(Version1.Charge)
    async def pay(attempt: Attempt[Version1.Charge]) -> str:
        return "paid"

    async with (
        setting.connect([Version1.Charge, BeforeMail.Greet]) as client,
        Worker(client, handlers, poll_interval=setting.poll_interval),
    ):
        assert await client.wait(chain.id, BeforeMail.Greet, timeout=30) == "done"
    async with setting.connect(jobs) as client:
        listed = await client.list_jobs(WithMail.Greet)
        (last,) = [record for record in listed.items if record.id != chain.id]
        assert isinstance(last.job, WithMail.Greet)
        assert (last.job.person, last.job.others, last.job.tags) == (ann, {"b": bob}, ["late"])


async def test_an_upgrade_that_fails_fails_its_job_alone(setting: Setting) -> None:
    class Broken(EntryJob[str], name="charge", version=2):
        cents: int

        @classmethod
        def upgrade(cls, data: dict[str, Any], version: int) -> dict[str, Any]:
            return {"cents": data["no such field"]}

    seen: list[str] = []
    async with setting.connect([Version1.Charge]) as client:
        old = await client.submit(Version1.Charge(euros=1))
    async with setting.connect([Broken]) as client:
        new = await client.submit(Broken(cents=2))
        async with Worker(client, handlers_for(Broken, seen), poll_interval=setting.poll_interval):
            assert await client.wait(new, timeout=45) == "paid"
            with pytest.raises(Exception, match="upgrade"):
                await client.wait(old.id, timeout=45)
        record = await client.get_job(old.id)
        assert record is not None
        with pytest.raises(JobTypeValidationError, match=r"upgrade\(\) from version 1 failed: KeyError"):
            _ = record.job
        with pytest.raises(JobTypeMismatch):
            await client.get_chain(old.id, "another")


def test_declarations_are_checked() -> None:
    with pytest.raises(InvalidJobType, match="version must be a number from 1 to 100"):

        class Wrong(EntryJob[None], name="wrong", version=0):
            pass

    with pytest.raises(InvalidJobType, match="aliases takes a list of names"):

        class AlsoWrong(EntryJob[None], name="wrong", aliases="old"):
            pass

    with pytest.raises(InvalidJobType, match="named twice"):

        class Twice(EntryJob[None], name="twice", aliases=["twice"]):
            pass

    class One(EntryJob[None], name="one", aliases=["shared"]):
        pass

    class Other(EntryJob[None], name="shared"):
        pass

    import queuert

    with pytest.raises(DuplicateJobType, match="shared"):
        queuert.connect("memory://", jobs=[One, Other])


async def test_a_job_can_wait_for_a_chain_of_any_version(setting: Setting) -> None:
    class After(EntryJob[str], name="after"):
        paid: Chain[Version2.Charge]

    handlers = handlers_for(Version2.Charge, [])

    @handlers.handles(After)
    async def after(attempt: Attempt[After]) -> str:
        return f"after {attempt.job.paid.output}"

    async with setting.connect([Version1.Charge]) as client:
        old = await client.submit(Version1.Charge(euros=1))
    async with setting.connect([Version2.Charge, After]) as client:
        chain = await client.get_chain(old.id, Version2.Charge)
        assert chain is not None
        waiting = [await client.submit(After(paid=chain))]
        waiting.append(await client.submit(After(paid=await client.submit(Version2.Charge(cents=5)))))
        async with Worker(client, handlers, poll_interval=setting.poll_interval):
            for each in waiting:
                assert await client.wait(each, timeout=45) == "after paid"
