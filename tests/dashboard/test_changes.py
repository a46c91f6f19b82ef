"""What operators change: each is asked about first, and recorded with a name and a reason."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import Any

import httpx
import pytest
from tests.dashboard import shop

from queuert import Client, Every, Schedules, Tick, Worker, testing
from queuert.operate.dashboard.drawing.hiding import HIDDEN


async def status_of(client: Client[Any], chain_id: str) -> str | None:
    chain = await client.get_chain(chain_id)
    return None if chain is None else chain.status


async def recorded(client: Client[Any]) -> tuple[str, str, str | None, str | None]:
    record = (await client.list_audit(limit=1)).items[0]
    return record.action, record.target, record.by, record.reason


async def test_retry_cancel_trigger_and_delete(web: httpx.AsyncClient, client: Client[Any], stock: shop.Stock) -> None:
    for action, chain, after in (
        ("retry", stock.failed, "pending"),
        ("trigger", stock.waiting, "pending"),
        ("cancel", stock.waiting, "cancelled"),
        ("delete", stock.loop, None),
    ):
        done = await shop.carry_out(web, f"/change/{action}/{chain}", reason=f"INC-42 {action}")
        assert done.status_code == 303, done.text
        assert await status_of(client, chain) == after
        name = (await recorded(client))[0]
        assert name == action
        assert (await recorded(client))[2:] == ("ada", f"INC-42 {action}")


async def test_a_reason_is_needed(web: httpx.AsyncClient, client: Client[Any], stock: shop.Stock) -> None:
    refused = await shop.carry_out(web, f"/change/retry/{stock.failed}", reason=" ")
    assert refused.status_code == 409
    assert "Say why" in refused.text
    assert await status_of(client, stock.failed) == "failed"


async def test_what_has_changed_meanwhile_is_told(
    web: httpx.AsyncClient, client: Client[Any], stock: shop.Stock
) -> None:
    asked = shop.form_of((await web.get(f"/change/retry/{stock.failed}")).text)
    async with client.transaction() as tx:
        await client.retry(tx, stock.failed)
    refused = await web.post(f"/change/retry/{stock.failed}", data={**asked, "reason": "x"})
    assert refused.status_code == 409
    assert "The chain is pending" in refused.text


async def test_cascade_is_offered_with_a_number(web: httpx.AsyncClient, client: Client[Any], stock: shop.Stock) -> None:
    asked = (await web.get(f"/change/cancel/{stock.waiting}")).text
    assert "cascade" not in asked
    chain = await client.submit(shop.Reserve(order=3))
    waits = await client.submit(shop.Invoice(customer="x", orders=[chain]))
    assert "Also cancel the chains that wait for it (1)" in (await web.get(f"/change/cancel/{chain.id}")).text
    await shop.carry_out(web, f"/change/cancel/{chain.id}", reason="x", cascade="1")
    assert await status_of(client, waits.id) == "cancelled"


async def test_cancelling_what_only_it_waits_for(web: httpx.AsyncClient, client: Client[Any]) -> None:
    chain = await client.submit(shop.Reserve(order=3))
    waits = await client.submit(shop.Invoice(customer="x", orders=[chain]))
    asked = (await web.get(f"/change/cancel/{waits.id}")).text
    assert "Also cancel the chains that only it waits for (1)" in asked
    await shop.carry_out(web, f"/change/cancel/{waits.id}", reason="x", blockers="1")
    assert await status_of(client, chain.id) == "cancelled"


async def test_a_failed_job_is_repaired_and_ends(
    web: httpx.AsyncClient, client: Client[Any], stock: shop.Stock
) -> None:
    done = await shop.carry_out(
        web, f"/change/repair/{stock.failed}", input='{"order": 7, "card": "4000"}', reason="wrong number"
    )
    assert done.headers["location"] == f"/chain/{stock.failed}?done=retried"
    async with testing.running(client, shop.handlers) as run:
        await run.until_idle()
    assert await status_of(client, stock.failed) == "completed"
    assert await status_of(client, stock.blocked) == "completed"


async def test_a_wrong_input_is_refused_with_what_is_wrong(
    web: httpx.AsyncClient, client: Client[Any], stock: shop.Stock
) -> None:
    for text, problem in (("{", "not JSON"), ('{"order": "x", "card": "y"}', "order"), ("[]", "JSON object")):
        refused = await shop.carry_out(web, f"/change/repair/{stock.failed}", input=text, reason="x")
        assert refused.status_code == 409
        assert problem in refused.text
        assert await status_of(client, stock.failed) == "failed"


async def test_a_hidden_value_that_is_left_stays_as_it_is(client: Client[Any], stock: shop.Stock) -> None:
    async with shop.browser(shop.make(client, hide=["card"])) as web:
        text = f'{{"order": 8, "card": "{HIDDEN}"}}'
        done = await shop.carry_out(web, f"/change/repair/{stock.failed}", input=text, reason="x")
    assert done.status_code == 303
    (job,) = (await client.list_jobs("charge-card", status="pending")).items
    assert job.input == {"order": 8, "card": shop.CARD}


async def test_all_that_match_after_the_plan(web: httpx.AsyncClient, client: Client[Any], stock: shop.Stock) -> None:
    path = "/change/many/retry?where=status:failed"
    plan = (await web.get(path)).text
    assert "<b>1 chain</b> match" in plan
    assert "1 <bdi>charge-card</bdi>" in plan
    done = await shop.carry_out(web, path, reason="INC-42", per_second="100")
    assert done.headers["location"] == "/operations?done=started"
    assert await recorded(client) == ("bulk-retry", "status:failed", "ada", "INC-42")
    async with testing.running(client, shop.handlers) as run:
        await run.until_idle()
    page = (await web.get("/operations")).text
    assert 'data-label="changed">1</td>' in page
    assert 'data-label="done">1 of 1, 100 %</td>' in page


async def test_an_operation_under_way_says_how_much_of_it_is_done(
    web: httpx.AsyncClient, client: Client[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(page: httpx.Response) -> dict[str, str]:
        return dict(re.findall(r'data-label="(done|changed|left as they are)">([^<]*)</td>', page.text))

    await client.submit_many([shop.Poll(round=9).set(after=3600) for _ in range(12)])
    async with client.transaction() as tx:
        operation = await client.bulk_cancel(tx, "status:pending type:poll-carrier", per_second=0.001)
    assert shown(await web.get("/operations")) == {"done": "not begun", "changed": "0", "left as they are": "0"}
    async with testing.running(client, shop.handlers) as run:
        await run.until_idle()  # the next page is due in a quarter of an hour
        assert shown(await web.get("/operations")) == {"done": "1 of 12, 8 %", "changed": "1", "left as they are": "0"}
        monkeypatch.setattr("queuert.operate.dashboard.pages.operations.TOTAL", 11)
        assert shown(await web.get("/operations"))["done"] == "1 of 11+"
        async with client.transaction() as tx:
            await client.cancel(tx, operation)
    assert shown(await web.get("/operations"))["done"] == "1 of 11+"


async def test_what_a_schedule_was_triggered_for_is_on_its_page(
    web: httpx.AsyncClient, client: Client[Any], stock: shop.Stock
) -> None:
    async with client.transaction() as tx:
        await client.put_schedule(tx, "daily", Every(timedelta(days=1)), shop.Poll(round=1))
        await client.put_schedule(tx, "weekly", Every(timedelta(days=7)), shop.Poll(round=2))
    assert "Nothing that is still stored" in (await web.get("/schedule?name=daily")).text
    first, done = [await shop.carry_out(web, "/change/schedule/trigger?name=daily", reason="INC-42") for _ in range(2)]
    assert first.status_code == 303
    started = (await client.list_chains("poll-carrier", order="desc", limit=2)).items
    page = (await web.get(done.headers["location"])).text
    assert "still stored" not in page
    for chain in started:
        assert f'href="/chain/{chain.id}"' in page
    assert stock.loop not in page
    assert "Nothing that is still stored" in (await web.get("/schedule?name=weekly")).text


async def test_a_function_that_was_triggered_waits_for_a_worker_and_is_shown_then(
    web: httpx.AsyncClient, client: Client[Any]
) -> None:
    schedules = Schedules()

    @schedules.every(timedelta(days=1))
    def nightly(tick: Tick) -> shop.Poll:
        return shop.Poll(round=9)

    async with Worker(client, [shop.handlers], schedules=[schedules]):
        while await client.get_schedule("nightly") is None:
            await asyncio.sleep(0.01)
    done = await shop.carry_out(web, "/change/schedule/trigger?name=nightly", reason="INC-42")
    waiting = (await web.get(done.headers["location"])).text
    assert "It was triggered" in waiting
    assert "still stored" not in waiting
    async with Worker(client, [shop.handlers], schedules=[schedules]):
        while len((await client.list_chains("poll-carrier")).items) < 2:
            await asyncio.sleep(0.01)
    (chain,) = (await client.list_chains("poll-carrier", order="desc", limit=1)).items
    page = (await web.get("/schedule?name=nightly")).text
    assert f'href="/chain/{chain.id}"' in page
    assert "It was triggered" not in page


async def test_chosen_chains_are_planned_before_they_are_changed(
    web: httpx.AsyncClient, client: Client[Any], stock: shop.Stock
) -> None:
    token = shop.form_of((await web.get("/chains")).text)["token"]
    planned = await web.post("/change/many/delete", data={"token": token, "chain": [stock.loop, stock.completed]})
    assert planned.status_code == 200
    assert "<b>2 chains</b> match" in planned.text
    assert await status_of(client, stock.loop) == "completed"
    done = await web.post("/change/many/delete", data={**shop.form_of(planned.text), "reason": "tidy"})
    assert done.status_code == 303


async def test_priority_and_rate_are_checked(web: httpx.AsyncClient, stock: shop.Stock) -> None:
    path = "/change/many/set_priority?where=status:pending"
    assert "not a priority" in (await shop.carry_out(web, path, reason="x", priority="high")).text
    assert "not a number" in (await shop.carry_out(web, path, reason="x", priority="5", per_second="fast")).text
    assert (await shop.carry_out(web, path, reason="x", priority="5")).status_code == 303


async def test_pausing_and_resuming(web: httpx.AsyncClient, client: Client[Any], stock: shop.Stock) -> None:
    await shop.carry_out(web, "/change/resume?target=type:send-mail", reason="moved")
    assert await client.list_pauses() == []
    assert await recorded(client) == ("resume", "type send-mail", "ada", "moved")
    refused = await shop.carry_out(web, "/change/pause?target=queue:default", reason="x", until="yesterday")
    assert refused.status_code == 409
    await shop.carry_out(web, "/change/pause?target=queue:default", reason="PSP down", until="2h")
    (pause,) = await client.list_pauses()
    assert (str(pause.target), pause.by, pause.reason) == ("queue default", "ada", "PSP down")
    assert pause.until is not None
    assert "PSP down" in (await web.get("/queues")).text


async def test_schedules_are_steered_and_recorded(
    web: httpx.AsyncClient, client: Client[Any], stock: shop.Stock
) -> None:
    name = f"daily {shop.ATTACK}"
    for action, status in (("pause", "paused"), ("resume", "active"), ("trigger", "active")):
        path = str(httpx.URL(f"/change/schedule/{action}", params={"name": name}))
        done = await shop.carry_out(web, path, reason="INC-42")
        assert done.status_code == 303, done.text
        schedule = await client.get_schedule(name)
        assert schedule is not None
        assert schedule.status == status
        assert await recorded(client) == (action, f"schedule {name}", "ada", "INC-42")
    await shop.carry_out(web, str(httpx.URL("/change/schedule/delete", params={"name": name})), reason="x")
    assert await client.get_schedule(name) is None


async def test_pruning_is_recorded(web: httpx.AsyncClient, client: Client[Any], stock: shop.Stock) -> None:
    assert "Say why" in (await shop.carry_out(web, "/change/prune", reason="")).text
    done = await shop.carry_out(web, "/change/prune", reason="the disk is full")
    assert done.headers["location"] == "/storage?done=pruned"
    assert await recorded(client) == ("prune", "ended chains", "ada", "the disk is full")


async def limit_rows(client: Client[Any]) -> dict[str | None, tuple[int | None, bool]]:
    return {row.key: (row.rule.concurrency, row.is_set) for row in (await client.list_limits()).items}


async def test_limits_are_changed_and_undone_for_one_key_and_for_all(
    web: httpx.AsyncClient, client: Client[Any], stock: shop.Stock
) -> None:
    name, key = shop.LIMIT, shop.ATTACK
    everything = str(httpx.URL("/change/limit/set", params={"lane": name}))
    one_key = str(httpx.URL("/change/limit/set", params={"lane": f"{name}\x1f{key}"}))
    assert await limit_rows(client) == {None: (2, False), "acme": (2, False), key: (2, False)}
    await shop.carry_out(web, everything, concurrency="3", reason="more")
    assert await recorded(client) == ("set_limit", f"limit {name}", "ada", "more")
    await shop.carry_out(web, everything, key="other", concurrency="none", rate="5/1/smooth", weight="3", reason="VIP")
    assert await recorded(client) == ("set_limit", f"limit {name}, key other", "ada", "VIP")
    assert "concurrency none, rate 5/1.0/True, weight 3.0" in (await web.get("/operations")).text
    done = await shop.carry_out(web, one_key, concurrency="7", reason="less")
    assert done.headers["location"] == "/queues?done=limited"
    assert await limit_rows(client) == {None: (3, True), "acme": (3, False), key: (7, True), "other": (None, True)}
    page = (await web.get("/queues")).text
    assert "5 in 1.0 s, evenly" in page
    assert "any number" in page
    for path in (everything, one_key):
        done = await shop.carry_out(web, path.replace("/set", "/clear"), reason="enough")
        assert done.headers["location"] == "/queues?done=unlimited"
    assert await recorded(client) == ("clear_limit", f"limit {name}, key {key}"[:200], "ada", "enough")
    again = await shop.carry_out(web, one_key.replace("/set", "/clear"), reason="enough")
    assert (again.status_code, "Nothing was set" in again.text) == (409, True)
    for field, text in (("concurrency", "many"), ("rate", "often"), ("weight", "nan"), ("concurrency", "0"), ("x", "")):
        refused = await shop.carry_out(web, everything, **{field: text, "reason": "x"})
        assert refused.status_code == 409, (field, text)
    assert (await limit_rows(client))[None] == (2, False)
    assert (await web.get("/change/limit/set")).status_code == 400


async def test_a_key_is_paused_and_resumed_also_without_jobs(
    web: httpx.AsyncClient, client: Client[Any], stock: shop.Stock
) -> None:
    for key in (shop.ATTACK, "nobody"):
        target = f"key:{shop.LIMIT}\x1f{key}"
        pausing = str(httpx.URL("/change/pause", params={"target": target}))
        assert "cancel_running" not in (await web.get(pausing)).text
        await shop.carry_out(web, pausing, reason="INC-42", until="2h")
        assert (await recorded(client))[:1] == ("pause",)
        page = (await web.get("/queues")).text
        resuming = str(httpx.URL("/change/resume", params={"target": target}))
        assert page.count("INC-42") == 1
        await shop.carry_out(web, resuming, reason="over")
        assert (await recorded(client))[::3] == ("resume", "over")
        assert "INC-42" not in (await web.get("/queues")).text
