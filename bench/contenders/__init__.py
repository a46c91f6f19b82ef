"""What is measured, each in a process of its own. The Python ones speak with the harness through `link`."""
