"""The in-process worker: claims jobs, runs their handlers, and stores the results."""
