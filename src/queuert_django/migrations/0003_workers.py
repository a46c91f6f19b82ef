from django.db import migrations

from queuert_django.operations import QueuertSchema


class Migration(migrations.Migration):
    atomic = False  # each version of our schema is committed by itself
    dependencies = [("queuert", "0002_function_sets")]  # noqa: RUF012
    operations = [QueuertSchema({"postgresql": 9, "sqlite": 6})]  # noqa: RUF012
