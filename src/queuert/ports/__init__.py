"""The contracts: what the engine asks of a database and of a message channel. No implementation lives here."""
