from django.db import migrations

from queuert_django.operations import QueuertSchema


class Migration(migrations.Migration):
    initial = True
    atomic = False  # each version of the schema commits separately
    dependencies: list[tuple[str, str]] = []  # noqa: RUF012
    operations = [QueuertSchema({"postgresql": 6, "sqlite": 2}, first=True)]  # noqa: RUF012
