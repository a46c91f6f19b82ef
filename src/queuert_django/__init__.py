"""queuert for Django.

Put "queuert_django" into INSTALLED_APPS, run `migrate`, and start jobs in your atomic blocks:

    with transaction.atomic():
        order.save()
        get_client().start(connection, ReserveStock(order_id=order.id))

Put jobs, handlers and schedules into the `jobs.py` of your apps. `manage.py queuert worker` runs
them.
"""

from queuert.adapters.django.connection import DjangoConnection
from queuert_django.clients import get_client
from queuert_django.handling import CloseOldConnections

__all__ = ["CloseOldConnections", "DjangoConnection", "get_client"]
