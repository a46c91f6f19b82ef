"""What adapters share that hear through a connection: one listener for all callbacks, back soon when it is lost."""
