"""The in-process worker: claims jobs, runs their handlers, and settles what became of them."""
