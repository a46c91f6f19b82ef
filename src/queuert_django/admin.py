"""Chains and jobs in the admin: to look at them, ask why they do not run, and steer them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any, cast

import msgspec
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.http import Http404
from django.urls import reverse
from django.utils.html import format_html, format_html_join

from queuert import Chain as ClientChain
from queuert import JobRecord, Page, SyncClient
from queuert.base.arguments import MAX_NAME_LENGTH
from queuert.operate.changes import Change
from queuert_django.actions import (
    CANCEL,
    RETRY,
    TRIGGER,
    Outcome,
    PauseForm,
    change_chains,
    pause_types,
    resume_types,
)
from queuert_django.clients import get_client
from queuert_django.discovery import find_jobs
from queuert_django.listing import PageList, SinceFilter, StatusFilter, TypeFilter
from queuert_django.models import Chain, Job
from queuert_django.options import admin_database

JOBS_SHOWN = 50
"""Jobs of a chain, the latest ones."""


class ReadOnlyAdmin(admin.ModelAdmin):
    """Everything is read with the client, from the database that the settings name."""

    change_list_template = "queuert/change_list.html"
    list_display: Sequence[str] = ("id",)
    readonly_fields: Sequence[str] = ()
    fields: Sequence[str] = ("id",)
    list_filter = (StatusFilter, TypeFilter, SinceFilter)
    list_per_page = 100
    search_fields = ("id",)
    search_help_text = "An id, or a filter like: status:failed type:charge-card error:TIMEOUT since:2h"
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # they would count all rows
    sortable_by = ()
    action_form = PauseForm
    actions: Sequence[str] = ("pause_these_types", "resume_these_types")
    id_word: str
    """The word of a filter that takes an id of what is listed."""

    def client(self) -> SyncClient[Any]:
        return get_client(self.alias())

    def alias(self) -> str:
        alias = admin_database()
        if alias is None:
            raise Http404("the setting QUEUERT names no database")
        return alias

    def type_names(self) -> list[str]:
        return [each.name for each in find_jobs()]

    def get_queryset(self, request: Any) -> Any:  # noqa: ARG002
        return self.model._base_manager.using(self.alias())

    def get_changelist(self, request: Any, **kwargs: Any) -> type[PageList]:  # noqa: ARG002
        return PageList

    def changelist_view(self, request: Any, extra_context: dict[str, Any] | None = None) -> Any:
        context = {"queuert_pauses": self.client().list_pauses(), **(extra_context or {})}
        return super().changelist_view(request, context)

    def has_add_permission(self, request: Any) -> bool:  # noqa: ARG002
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def has_pause_permission(self, request: Any) -> bool:
        return bool(request.user.has_perm("queuert.pause_job"))

    def read_page(self, **options: Any) -> Page[Any]:
        raise NotImplementedError

    def types_of(self, ids: Sequence[str]) -> list[str]:
        """The types of what was selected."""
        raise NotImplementedError

    @admin.action(description="Pause their job types", permissions=["pause"])
    def pause_these_types(self, request: Any, queryset: Any) -> None:  # noqa: ARG002
        self._tell(
            request,
            pause_types(
                self.client(),
                self.alias(),
                self.types_of(selected(request)),
                reason=request.POST.get("reason", ""),
                until=request.POST.get("until", ""),
                by=name_of(request),
            ),
        )

    @admin.action(description="Resume their job types", permissions=["pause"])
    def resume_these_types(self, request: Any, queryset: Any) -> None:  # noqa: ARG002
        types = self.types_of(selected(request))
        self._tell(request, resume_types(self.client(), self.alias(), types, by=name_of(request)))

    def _tell(self, request: Any, outcome: Outcome) -> None:
        self.message_user(request, outcome.text, messages.SUCCESS if outcome.complete else messages.WARNING)


class JobAdmin(ReadOnlyAdmin):
    list_display: Sequence[str] = ("id", "job_type", "status", "attempt_number", "created_at", "completed_at", "error")
    readonly_fields: Sequence[str] = ("chain", "input_text", "output_text", "error_text")
    fields: Sequence[str] = (
        "id", "job_type", "status", "chain", "chain_index", "priority", "attempt_number", "losses", "created_at",
        "scheduled_at", "deadline", "last_attempt_at", "leased_by", "leased_until", "completed_at", "completed_by",
        "continued_to", "dedup_key", "input_text", "output_text", "error_text",
    )  # fmt: skip
    id_word = "job"

    def read_page(self, **options: Any) -> Page[Job]:
        page = self.client().list_jobs(**options)
        return Page([job_of(record) for record in page.items], page.next_cursor)

    def types_of(self, ids: Sequence[str]) -> list[str]:
        return sorted({record.job_type for record in self.client().list_jobs(ids=ids, limit=1000).items})

    def get_object(self, request: Any, object_id: str, from_field: Any = None) -> Job | None:  # noqa: ARG002
        record = self.client().get_job(object_id) if is_id(object_id) else None
        return None if record is None else job_of(record)

    @admin.display(description="error")
    def error(self, job: Any) -> str:
        return str((job.last_error or {}).get("code", ""))

    @admin.display(description="chain")
    def chain(self, job: Any) -> str:
        return html_of('<a href="{}">{} {}</a>', chain_link(job.chain_id), job.chain_type, job.chain_id)

    @admin.display(description="input")
    def input_text(self, job: Any) -> str:
        return pre(json.dumps(job.input, indent=2, ensure_ascii=False))

    @admin.display(description="output")
    def output_text(self, job: Any) -> str:
        # The client decodes outputs, so this may be an object of any class.
        output = msgspec.to_builtins(job.output, str_keys=True, enc_hook=str)
        return "" if job.output is None else pre(json.dumps(output, indent=2, ensure_ascii=False))

    @admin.display(description="last error")
    def error_text(self, job: Any) -> str:
        error = job.last_error
        return "" if not error else pre(f"{error.get('code')}: {error.get('message')}\n\n{error.get('traceback', '')}")


class ChainAdmin(JobAdmin):
    list_display = ("id", "types", "status", "created_at", "completed_at", "error")
    readonly_fields = ("types", "why", "jobs", "input_text", "output_text", "error_text")
    fields = ("id", "types", "status", "why", "created_at", "completed_at", "dedup_key", "jobs", "input_text",
              "output_text", "error_text")  # fmt: skip
    actions = ("retry", "cancel", "trigger", *ReadOnlyAdmin.actions)
    id_word = "chain"

    def read_page(self, **options: Any) -> Page[Any]:
        page = self.client().list_chains(**options)
        return Page([chain_of(chain) for chain in page.items], page.next_cursor)

    def types_of(self, ids: Sequence[str]) -> list[str]:
        chains = self.client().list_chains(ids=ids, limit=1000).items
        return sorted({chain.current_job_type or chain.chain_type for chain in chains})

    def get_object(self, request: Any, object_id: str, from_field: Any = None) -> Any:  # noqa: ARG002
        found = self.client().get_chain(object_id) if is_id(object_id) else None
        if found is None:
            return None
        (current,) = self.client().list_chain_jobs(found, order="desc", limit=1).items
        chain = chain_of(found)
        for name in ("input", "output", "dedup_key"):
            setattr(chain, name, getattr(current, name))
        return chain

    def has_retry_permission(self, request: Any) -> bool:
        return bool(request.user.has_perm("queuert.retry_chain"))

    def has_cancel_permission(self, request: Any) -> bool:
        return bool(request.user.has_perm("queuert.cancel_chain"))

    def has_trigger_permission(self, request: Any) -> bool:
        return bool(request.user.has_perm("queuert.trigger_chain"))

    @admin.action(description="Retry: new attempts for failed chains", permissions=["retry"])
    def retry(self, request: Any, queryset: Any) -> None:  # noqa: ARG002
        self._change(request, RETRY)

    @admin.action(description="Cancel chains that have not ended", permissions=["cancel"])
    def cancel(self, request: Any, queryset: Any) -> None:  # noqa: ARG002
        self._change(request, CANCEL)

    @admin.action(description="Make due now", permissions=["trigger"])
    def trigger(self, request: Any, queryset: Any) -> None:  # noqa: ARG002
        self._change(request, TRIGGER)

    def _change(self, request: Any, change: Change) -> None:
        outcome = change_chains(self.client(), self.alias(), change, selected(request), by=name_of(request))
        for chain in outcome.changed:
            self.log_change(request, chain_of(chain), f"{change.done} the chain")
        self._tell(request, outcome)

    @admin.display(description="type")
    def types(self, chain: Any) -> str:
        """The type of the chain, and that of its current job if it is another one."""
        return chain.chain_type if chain.job_type == chain.chain_type else f"{chain.chain_type} → {chain.job_type}"

    @admin.display(description="why it is not running")
    def why(self, chain: Any) -> str:
        return pre(str(self.client().why(chain.id)))

    @admin.display(description="jobs, the latest first")
    def jobs(self, chain: Any) -> str:
        page = self.client().list_chain_jobs(chain.id, order="desc", limit=JOBS_SHOWN)
        rows = [(job_link(job.id), job.id, job.job_type, job.status, job.attempt_number) for job in page.items]
        more = "…" if page.next_cursor else ""
        return html_of("{}{}", format_html_join("", '<a href="{}">{}</a> {}: {}, attempt {}<br>', rows), more)


def selected(request: Any) -> list[str]:
    """Never "all of them": these would be all jobs of the database."""
    return [each for each in request.POST.getlist(ACTION_CHECKBOX_NAME) if is_id(each)]


def name_of(request: Any) -> str:
    """For the audit, which takes shorter names than a user model of a project may have."""
    return str(request.user.get_username())[:MAX_NAME_LENGTH]


def is_id(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def job_of(record: JobRecord[Any]) -> Job:
    model: Any = Job
    return Job(**{field.name: getattr(record, field.name) for field in model._meta.fields})


def chain_of(chain: ClientChain[Any]) -> Any:
    return Chain(
        id=chain.id,
        chain_id=chain.id,
        chain_type=chain.chain_type,
        job_type=chain.current_job_type,
        status=chain.status,
        created_at=chain.created_at,
        completed_at=chain.completed_at,
        last_error=chain.last_error,
    )


def chain_link(chain_id: str) -> str:
    return str(reverse("admin:queuert_chain_change", args=[chain_id]))


def job_link(job_id: str) -> str:
    return str(reverse("admin:queuert_job_change", args=[job_id]))


def pre(text: str) -> str:
    return html_of('<pre style="white-space: pre-wrap; margin: 0">{}</pre>', text)


def html_of(html: str, *values: object) -> str:
    """HTML with escaped values."""
    made: Any = format_html(html, *values)
    return cast("str", made)


admin.site.register(Job, JobAdmin)
admin.site.register(Chain, ChainAdmin)
