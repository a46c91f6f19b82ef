from django.db import migrations

from queuert_django.operations import QueuertSchema


class Migration(migrations.Migration):
    atomic = False  # each version of our schema is committed by itself
    dependencies = [("queuert", "0004_operate")]  # noqa: RUF012
    operations = [QueuertSchema({"postgresql": 13, "sqlite": 10})]  # noqa: RUF012
