from django.db import migrations, models

from queuert_django.models import IdField
from queuert_django.options import jobs_view

MANAGERS = [("no_rows", models.Manager())]


class Migration(migrations.Migration):
    """The models of the admin. Nothing is created: they read the view of all jobs."""

    dependencies = [("queuert", "0007_retention")]  # noqa: RUF012
    operations = [  # noqa: RUF012
        migrations.CreateModel(
            name="Job",
            fields=[("id", IdField(primary_key=True, serialize=False))],
            options={
                "db_table": jobs_view(),
                "managed": False,
                "default_permissions": ("view",),
                "permissions": (("pause_job", "Can pause and resume job types"),),
            },
            managers=MANAGERS,
        ),
        migrations.CreateModel(
            name="Chain",
            fields=[],
            options={
                "proxy": True,
                "default_permissions": ("view",),
                "permissions": (
                    ("retry_chain", "Can retry chains"),
                    ("cancel_chain", "Can cancel chains"),
                    ("trigger_chain", "Can make chains due now"),
                ),
            },
            bases=("queuert.job",),
            managers=MANAGERS,
        ),
    ]
