"""Lists in the admin, read page by page with the client: nothing is counted, and every filter uses
an index or reads a bounded number of rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from django.contrib import messages
from django.contrib.admin import SimpleListFilter
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator

from queuert import Filter, Page
from queuert.base.statuses import STATUSES
from queuert.errors import InvalidArgument

AFTER = "after"
"""The cursor of the page, in the address."""


class WordFilter(SimpleListFilter):
    """A filter at the side of the list. It adds words to the filter of the client."""

    def words(self) -> str:
        raise NotImplementedError

    def queryset(self, request: Any, queryset: Any) -> Any:  # noqa: ARG002
        return queryset


class StatusFilter(WordFilter):
    title = "status"
    parameter_name = "status"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:  # noqa: ARG002
        return [(status, status) for status in STATUSES]

    def words(self) -> str:
        return f"status:{self.value()}"


class TypeFilter(WordFilter):
    title = "type"
    parameter_name = "type"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:  # noqa: ARG002
        """The types that have jobs which are open or have failed, and those of the project."""
        client = model_admin.client()
        names = {each.job_type for each in client.stats(limit=1)} | set(model_admin.type_names())
        return [(name, name) for name in sorted(names)]

    def words(self) -> str:
        return str(Filter(type=self.value()))


class SinceFilter(WordFilter):
    title = "time"
    parameter_name = "since"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:  # noqa: ARG002
        return [("1h", "the last hour"), ("1d", "the last day"), ("7d", "the last 7 days")]

    def words(self) -> str:
        return f"since:{self.value()}"


class PageList(ChangeList):
    """One page after the other, by cursors."""

    after: str | None = None
    first_link: str
    next_link: str | None

    def get_queryset(self, request: Any, exclude_parameters: Any = None) -> Any:  # noqa: ARG002
        # A link to another filter begins at the first page.
        self.after = self.params.pop(AFTER, self.after)
        self.filter_params.pop(AFTER, None)
        found = self.get_filters(request)
        self.filter_specs, self.has_filters, unknown, _, self.has_active_filters = found
        if unknown:
            raise IncorrectLookupParameters(f"there is no filter {', '.join(unknown)}")
        self.clear_all_filters_qs = self.get_query_string(remove=self.get_filters_params())
        return self.root_queryset

    def get_results(self, request: Any) -> None:
        page = self._read(request)
        self.result_list = page.items
        self.result_count = len(page.items)
        self.full_result_count = None
        self.show_full_result_count = False
        self.show_admin_actions = True
        self.can_show_all = self.multi_page = False
        self.paginator = Paginator(page.items, self.list_per_page)
        self.first_link = self.get_query_string()
        self.next_link = None if page.next_cursor is None else self.get_query_string({AFTER: page.next_cursor})

    def _read(self, request: Any) -> Page[Any]:
        specs: Sequence[Any] = self.filter_specs
        words = [spec.words() for spec in specs if isinstance(spec, WordFilter) and spec.value()]
        read: Callable[..., Page[Any]] = self.model_admin.read_page
        try:
            where = Filter.parse(" ".join([_query(self.query, self.model_admin.id_word), *words]))
            return read(where=where, order="desc", limit=self.list_per_page, cursor=self.after)
        except InvalidArgument as error:
            messages.error(request, str(error))
            return Page([], None)


def _query(text: str, id_word: str) -> str:
    """What was typed: a filter, or an id."""
    try:
        return f"{id_word}:{uuid.UUID(text.strip())}"
    except ValueError:
        return text
