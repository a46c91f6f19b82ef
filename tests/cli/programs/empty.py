"""There is nothing here."""
