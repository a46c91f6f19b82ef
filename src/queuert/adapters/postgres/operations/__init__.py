"""The operations of the state port, one module per family."""
