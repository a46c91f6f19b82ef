from django.db import migrations

from queuert_django.operations import QueuertSchema


class Migration(migrations.Migration):
    atomic = False  # each version of our schema is committed by itself
    dependencies = [("queuert", "0006_schedules")]  # noqa: RUF012
    operations = [QueuertSchema({"postgresql": 15, "sqlite": 12})]  # noqa: RUF012
