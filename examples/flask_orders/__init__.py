"""An order service with Flask and SQLAlchemy, and a worker in its own process."""
