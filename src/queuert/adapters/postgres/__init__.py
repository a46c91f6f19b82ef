"""Jobs in PostgreSQL, through psycopg 3 or asyncpg.

The providers stand in modules of their own, so that only the driver that is used need be installed:
`psycopg_provider.PsycopgProvider`, `psycopg_sync_provider.PsycopgSyncProvider`, `asyncpg_provider.AsyncpgProvider`.
"""
