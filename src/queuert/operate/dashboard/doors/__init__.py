"""The doors: what servers and frameworks call, each a thin layer around the core."""
