from django.db import migrations

from queuert_django.operations import QueuertSchema


class Migration(migrations.Migration):
    atomic = False  # each version of our schema is committed by itself
    dependencies = [("queuert", "0013_losses")]  # noqa: RUF012
    operations = [QueuertSchema({"postgresql": 22, "sqlite": 16})]  # noqa: RUF012
