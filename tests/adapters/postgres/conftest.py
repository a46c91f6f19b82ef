from tests.support.postgres import database_url, own_server, postgres

__all__ = ["database_url", "own_server", "postgres"]
