"""Pages of the listings that have an index cost the same at any size of the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.adapters.sqlite_support import START, Sqlite, job, waiting_for

from queuert.base.statuses import Status
from queuert.errors import InvalidArgument, InvalidCursor
from queuert.ports.program import Program
from queuert.records.listings import ChainFilter, JobFilter, Listed, Order, PageRequest

APART = ("blocked", "failed", "cancelled", "expired")

FILL = """
WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < :rows)
INSERT INTO queuert_job (id, type_name, chain_id, chain_type, chain_index, status, ready, priority, created_at,
    scheduled_at, token, leased_until, input)
SELECT
    printf('%012d-single', n), iif(n % 3, 'a', 'b'), printf('%012d-single', n), iif(n % 3, 'a', 'b'), 0,
    status.value, iif(status.value = 'pending', n % 2, NULL), 100, n, n,
    iif(status.value = 'running', n, NULL), iif(status.value = 'running', n, NULL), '{}'
FROM number CROSS JOIN json_each('["completed", "blocked", "pending", "running", "failed", "cancelled", "expired"]')
    AS status ON status.key = n % 7
UNION ALL
SELECT
    printf('%012d-linked', n), 'a', '000000000001-linked', 'a', n - 1,
    'completed', NULL, 100, n, n, NULL, NULL, '{}'
FROM number
"""

# 50 chains of one job that wait for the long chain at each size, so that there is a page of blocked jobs.
EDGES = """
INSERT INTO queuert_blocker (job_id, position, chain_id)
SELECT id, 0, '000000000001-linked' FROM queuert_job WHERE chain_index = 0 AND status = 'blocked'
"""

LONG_CHAIN = "000000000001-linked"


def filled(path: Path, rows: int) -> Sqlite:
    sqlite = Sqlite(path)
    with sqlite.provider.transaction() as connection:
        connection.execute(FILL, {"rows": rows})
        connection.execute(EDGES)
    return sqlite


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sqlite, Sqlite]]:
    folder = tmp_path_factory.mktemp("listing")
    small, large = filled(folder / "small.db", 2_000), filled(folder / "large.db", 10_000)
    yield small, large
    small.adapter.close()
    large.adapter.close()


List = Callable[[Sqlite, PageRequest], Program[list[Any]]]


def _jobs(**where: Any) -> List:
    return lambda sqlite, page: _rows(sqlite.ops.list_jobs(JobFilter(**where), page))


def _chains(**where: Any) -> List:
    return lambda sqlite, page: _rows(sqlite.ops.list_chains(ChainFilter(**where), page))


def _rows(listing: Program[Listed[Any]]) -> Program[list[Any]]:
    return (yield from listing).rows


NOT_COMPLETED = [status for status in get_args(Status) if status != "completed"]
IDS = tuple(f"{number:012d}-single" for number in range(300, 400))

SERVED: dict[str, List] = {
    "jobs": _jobs(),
    "jobs by ids": _jobs(job_ids=IDS),
    "jobs by type": _jobs(types=("b",)),
    **{f"jobs that are {status}": _jobs(statuses=(status,)) for status in NOT_COMPLETED},
    **{f"jobs by type that are {status}": _jobs(types=("b",), statuses=(status,)) for status in APART},
    "chains": _chains(),
    "chains by ids": _chains(chain_ids=IDS),
    "chains by type": _chains(chain_types=("b",)),
    **{f"chains that are {status}": _chains(statuses=(status,)) for status in NOT_COMPLETED},
    **{f"chains by type that are {status}": _chains(chain_types=("b",), statuses=(status,)) for status in APART},
    "jobs of two statuses": _jobs(statuses=("failed", "running")),
    "jobs of two types": _jobs(types=("b", "a")),
    "jobs of two types and statuses": _jobs(types=("b", "a"), statuses=("failed", "expired")),
    "jobs of chains": _jobs(chain_ids=(LONG_CHAIN,)),
    "chains of two types and statuses": _chains(chain_types=("b", "a"), statuses=("failed", "expired")),
    "chains by jobs": _chains(job_ids=IDS),
    "jobs of a chain": lambda sqlite, page: sqlite.ops.list_chain_jobs(LONG_CHAIN, page),
    "jobs blocked by a chain": lambda sqlite, page: sqlite.ops.list_blocked_jobs(LONG_CHAIN, page),
}


@pytest.mark.parametrize("order", get_args(Order))
@pytest.mark.parametrize("name", SERVED)
def test_a_page_costs_the_same_at_any_size(sizes: tuple[Sqlite, Sqlite], name: str, order: Order) -> None:
    after = {"jobs of a chain": "350", "jobs of chains": f"{LONG_CHAIN}/350"}.get(name, "000000000350")
    costs: list[int] = []
    for sqlite in sizes:
        found: list[int] = []

        def read_page(sqlite: Sqlite = sqlite, found: list[int] = found) -> None:
            page = PageRequest(50, after, order)
            found.append(len(sqlite.do(SERVED[name](sqlite, page))))

        costs.append(sqlite.steps(read_page))
        assert found == [50] or "by ids" in name or "by jobs" in name or ("by type" in name and order == "desc")
    small, large = costs
    assert large <= small + 10


TESTED: dict[str, List] = {
    "jobs by error": _jobs(errors=("none",)),
    "failed jobs by error": _jobs(statuses=("failed",), errors=("none",)),
    "completed jobs by end": _jobs(statuses=("completed",), ended_before=START),
    "jobs by creation": _jobs(created_from=START + timedelta(days=1)),
    "jobs by chain type": _jobs(chain_types=("none",)),
    "jobs of a chain by creation": _jobs(chain_ids=(LONG_CHAIN,), created_from=START + timedelta(days=1)),
    "chains by error": _chains(errors=("none",)),
    "chains by creation": _chains(created_from=START + timedelta(days=1)),
    "completed chains by chain type": _chains(statuses=("completed",), chain_types=("none",)),
    "chains by current type": _chains(types=("a",), created_from=START + timedelta(days=1)),
}


@pytest.mark.parametrize("order", get_args(Order))
@pytest.mark.parametrize("name", TESTED)
def test_a_page_without_matches_reads_so_many_rows_at_most(
    sizes: tuple[Sqlite, Sqlite], name: str, order: Order
) -> None:
    costs: list[int] = []
    for sqlite in sizes:
        page = PageRequest(50, None, order, examine=200)
        costs.append(sqlite.steps(lambda sqlite=sqlite, page=page: sqlite.do(TESTED[name](sqlite, page))))  # type: ignore[misc]
    small, large = costs
    assert large <= small + 50
    assert large <= 200 * 200


@pytest.mark.parametrize("order", get_args(Order))
def test_the_pages_of_every_filter_fit_together(sizes: tuple[Sqlite, Sqlite], order: Order) -> None:
    """Also of those that are a scan."""
    sqlite, _ = sizes
    for names, status in product((None, ("b",)), (None, *get_args(Status))):
        by_status: dict[str, Any] = {} if status is None else {"statuses": (status,)}
        chains = ChainFilter(chain_types=names, **by_status)
        for make, key in (
            (_jobs(types=names, **by_status), _job_key),
            (_chains(chain_types=names, **by_status), _chain_key(chains)),
        ):
            whole = sqlite.do(make(sqlite, PageRequest(100_000, None, order)))
            keys = [key(row) for row in whole]
            assert keys == sorted(keys, reverse=order == "desc")
            pages: list[Any] = []
            after: str | None = None
            while page := sqlite.do(make(sqlite, PageRequest(700, after, order))):
                pages += page
                after = key(page[-1])
            assert pages == whole


def _job_key(row: Any) -> str:
    return str(row.id)


def _chain_key(where: ChainFilter) -> Callable[[Any], str]:
    return lambda row: str(row.current.id if where.by_current else row.first.id)


def test_filters_that_no_index_serves_are_tested_along_the_walk(tmp_path: Path) -> None:
    sqlite = Sqlite(tmp_path / "jobs.db")
    first = job("a")
    sqlite.create(first, job("a"))
    sqlite.clock.advance(10)
    second = job("b", blockers=waiting_for(first))
    sqlite.create(second)
    page = PageRequest(10)

    def jobs(**where: Any) -> list[str]:
        return [row.type_name for row in sqlite.do(sqlite.ops.list_jobs(JobFilter(**where), page)).rows]

    def chains(**where: Any) -> list[str]:
        return [row.first.type_name for row in sqlite.do(sqlite.ops.list_chains(ChainFilter(**where), page)).rows]

    later = START + timedelta(microseconds=1)
    assert jobs(created_from=later) == chains(created_from=later) == ["b"]
    assert jobs(created_before=sqlite.clock.time) == chains(created_before=sqlite.clock.time) == ["a", "a"]
    assert jobs(types=("a",), statuses=("pending",)) == chains(chain_types=("a",), statuses=("pending",)) == ["a", "a"]
    assert chains(root_only=True) == ["a", "b"]
    assert chains(root_only=True, statuses=("blocked",)) == ["b"]
    assert chains(chain_ids=(first.id, "nobody"), statuses=("pending",), chain_types=("a",)) == ["a"]
    assert chains(chain_ids=(first.id,), chain_types=("b",)) == jobs(job_ids=()) == []
    sqlite.adapter.close()


def test_a_status_never_becomes_sql(tmp_path: Path) -> None:
    sqlite = Sqlite(tmp_path / "jobs.db")
    wrong: Any = "failed' OR '1' = '1"
    with pytest.raises(InvalidArgument, match="status"):
        sqlite.do(sqlite.ops.list_jobs(JobFilter(statuses=(wrong,)), PageRequest(10)))
    sqlite.adapter.close()


def test_a_cursor_of_a_chains_jobs_is_a_number(tmp_path: Path) -> None:
    sqlite = Sqlite(tmp_path / "jobs.db")
    new = job()
    sqlite.create(new)
    for bad in ("x", "-1", "²", ""):
        with pytest.raises(InvalidCursor):
            sqlite.do(sqlite.ops.list_chain_jobs(new.id, PageRequest(10, bad)))
    assert sqlite.do(sqlite.ops.list_chain_jobs(new.id, PageRequest(10, "9" * 40))) == []
    sqlite.adapter.close()


PLANS = {
    "jobs": (JobFilter(), "SCAN job USING INDEX sqlite_autoindex_queuert_job_1"),
    "by type": (JobFilter(types=("a",)), "SEARCH job USING INDEX queuert_job_type (type_name=?)"),
    "by status": (JobFilter(statuses=("running",)), "SEARCH job USING INDEX queuert_job_status (status=?)"),
    "by type and status": (
        JobFilter(types=("a",), statuses=("failed",)),
        "SEARCH job USING INDEX queuert_job_type_status (type_name=? AND status=?)",
    ),
    "chains by type": (ChainFilter(chain_types=("a",)), "SEARCH job USING INDEX queuert_job_first (type_name=?)"),
    "chains by status": (ChainFilter(statuses=("failed",)), "SEARCH job USING INDEX queuert_job_status (status=?)"),
    "chains by type and status": (
        ChainFilter(chain_types=("a",), statuses=("failed",)),
        "SEARCH job USING INDEX queuert_job_chain_type_status (chain_type=? AND status=?)",
    ),
    "chains": (ChainFilter(), "SEARCH queuert_job USING COVERING INDEX queuert_job_chain"),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_listing_walks_its_index_and_sorts_nothing(sizes: tuple[Sqlite, Sqlite], name: str) -> None:
    sqlite, _ = sizes
    where, expected = PLANS[name]
    listing: Any = sqlite.ops.list_chains if isinstance(where, ChainFilter) else sqlite.ops.list_jobs
    plan = [step.replace("COVERING ", "") for step in sqlite.plan(next(listing(where, PageRequest(50))))]
    assert expected.replace("COVERING ", "") in plan
    assert "USE TEMP B-TREE FOR ORDER BY" not in plan
