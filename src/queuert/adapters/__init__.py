"""What the ports can stand on: one module or folder per database or message channel."""
