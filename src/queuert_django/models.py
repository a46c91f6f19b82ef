"""Models of the admin's pages. They have no tables of their own: they read the view of all jobs.

Programs read jobs with the client, which also uses indexes that the view cannot.
"""

from __future__ import annotations

import json
import uuid
from typing import Any, ClassVar

from django.core.exceptions import ValidationError
from django.db import models

from queuert_django.options import jobs_view


class IdField(models.CharField):
    """A UUID as text: SQLite stores it so, and PostgreSQL converts it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"max_length": 36, **kwargs})

    def db_type(self, connection: Any) -> Any:
        return "uuid" if connection.vendor == "postgresql" else super().db_type(connection)

    def to_python(self, value: Any) -> str | None:
        try:
            return None if value is None else str(uuid.UUID(str(value)))
        except ValueError:
            raise ValidationError(f"{value!r} is not an id") from None

    def from_db_value(self, value: Any, *_: Any) -> str | None:
        return None if value is None else str(value)


class JsonField(models.TextField):
    """JSON, to be read only: drivers return it as text or decoded."""

    def from_db_value(self, value: Any, *_: Any) -> Any:
        return json.loads(value) if isinstance(value, str | bytes) else value


class NoRows(models.Manager):
    """Finds nothing. It keeps `dumpdata` from writing jobs that `loaddata` could not store."""

    def get_queryset(self) -> Any:
        return super().get_queryset().none()


class Job(models.Model):
    """A stored job."""

    id = IdField(primary_key=True)
    job_type = models.CharField(max_length=1000)
    status = models.CharField(max_length=20)
    chain_id = IdField()
    chain_type = models.CharField(max_length=1000)
    chain_index = models.IntegerField()
    priority = models.IntegerField()
    attempt_number = models.IntegerField()
    created_at = models.DateTimeField()
    scheduled_at = models.DateTimeField()
    last_attempt_at = models.DateTimeField(null=True)
    completed_at = models.DateTimeField(null=True)
    completed_by = models.CharField(max_length=1000, null=True)
    continued_to = IdField(null=True)
    leased_by = models.CharField(max_length=1000, null=True)
    leased_until = models.DateTimeField(null=True)
    deadline = models.DateTimeField(null=True)
    dedup_key = models.CharField(max_length=1000, null=True)
    input = JsonField()
    output = JsonField(null=True)
    last_error = JsonField(null=True)
    losses = models.IntegerField()

    no_rows: ClassVar[Any] = NoRows()

    class Meta:
        managed = False
        db_table = jobs_view()
        default_permissions = ("view",)
        permissions = (("pause_job", "Can pause and resume job types"),)

    def __str__(self) -> str:
        return f"{self.job_type} {self.id}"


class Chain(Job):
    """A chain: the id and the beginning of its first job, the rest of its current one."""

    class Meta:  # pyright: ignore[reportIncompatibleVariableOverride]
        proxy = True
        default_permissions = ("view",)
        permissions = (
            ("retry_chain", "Can retry chains"),
            ("cancel_chain", "Can cancel chains"),
            ("trigger_chain", "Can make chains due now"),
        )

    def __str__(self) -> str:
        return f"{self.chain_type} {self.id}"
