"""The client: the door through which applications start, read, change and await chains."""
