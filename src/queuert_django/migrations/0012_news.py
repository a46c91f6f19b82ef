from django.db import migrations

from queuert_django.operations import QueuertSchema


class Migration(migrations.Migration):
    atomic = False  # each version of our schema is committed by itself
    dependencies = [("queuert", "0011_fewer_writes")]  # noqa: RUF012
    operations = [QueuertSchema({"postgresql": 20, "sqlite": 14})]  # noqa: RUF012
