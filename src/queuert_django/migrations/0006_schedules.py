from django.db import migrations

from queuert_django.operations import QueuertSchema


class Migration(migrations.Migration):
    atomic = False  # each version of our schema is committed by itself
    dependencies = [("queuert", "0005_bulk")]  # noqa: RUF012
    operations = [QueuertSchema({"postgresql": 14, "sqlite": 11})]  # noqa: RUF012
