from django.db import migrations

from queuert_django.operations import QueuertSchema


class Migration(migrations.Migration):
    atomic = False  # each version of our schema is committed by itself
    dependencies = [("queuert", "0008_admin")]  # noqa: RUF012
    operations = [QueuertSchema({"postgresql": 16, "sqlite": 13})]  # noqa: RUF012
