"""The contenders.

Each runs in its own process. The Python ones talk to the harness through `link`.
"""
