"""An order service with Django: a request writes an order and starts its chain in one transaction.

pip install 'queuert[django,psycopg]'
cd examples
python -m django_orders.manage migrate
python -m django_orders.manage runserver
python -m django_orders.manage queuert worker --concurrency 4
"""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "django_orders.settings")
    execute_from_command_line(sys.argv)
