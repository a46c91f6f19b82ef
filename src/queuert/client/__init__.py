"""The client: applications use it to start, read, change and await chains."""
