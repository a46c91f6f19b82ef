"""The contracts for databases and notification channels. There are no implementations here."""
