"""An order service with FastAPI, SQLAlchemy and a worker in the same process."""
