"""What the tests of SQLAlchemy share."""

from tests.support.postgres import database_url, migrated_url, postgres

__all__ = ["database_url", "migrated_url", "postgres"]
