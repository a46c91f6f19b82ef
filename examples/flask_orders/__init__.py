"""An order service with Flask and SQLAlchemy, and a worker in a process of its own."""
