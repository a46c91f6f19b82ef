"""Filters and repairs through the public client, on PostgreSQL."""

from __future__ import annotations

from tests.support.jobs import Greet, Rate

import queuert
from queuert import Filter


def test_a_failed_job_is_found_and_repaired(database_url: str) -> None:
    with queuert.connect_sync(database_url, jobs=[Greet, Rate]) as client:
        chain = client.submit(Greet(who="yuo"), dedup="k")
        client.submit(Rate())
        with client.transaction() as tx:
            client.cancel(tx, chain)
        for where in ("status:cancelled type:greet since:2h", f"job:{chain.id}", Filter(key="k"), Filter(chain=chain)):
            assert list(client.iter_chains(where=where)) == [chain]
            assert [job.id for job in client.iter_jobs(where=where)] == [chain.id]
        with client.transaction() as tx:
            (again,) = client.retry(tx, chain, input=Greet(who="you"), deadline=60)
        assert (again.status, again.input) == ("pending", {"who": "you"})
        assert list(client.iter_chains(where="status:cancelled")) == []
