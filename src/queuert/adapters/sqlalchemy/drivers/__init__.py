"""The drivers that are supported: each a module that is imported when its driver is used."""
