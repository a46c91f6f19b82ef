"""The implementations of the ports: one module or folder per database or message channel."""
