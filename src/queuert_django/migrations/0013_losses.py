from django.db import migrations

from queuert_django.operations import QueuertSchema


class Migration(migrations.Migration):
    atomic = False  # each version of our schema is committed by itself
    dependencies = [("queuert", "0012_news")]  # noqa: RUF012
    operations = [QueuertSchema({"postgresql": 21, "sqlite": 15})]  # noqa: RUF012
