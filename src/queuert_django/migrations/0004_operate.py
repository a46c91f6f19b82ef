from django.db import migrations

from queuert_django.operations import QueuertSchema


class Migration(migrations.Migration):
    atomic = False  # each version of our schema is committed by itself
    dependencies = [("queuert", "0003_workers")]  # noqa: RUF012
    operations = [QueuertSchema({"postgresql": 12, "sqlite": 9})]  # noqa: RUF012
