"""The client: applications use it to start, read, change and await chains.

Imports `features`, `engine` and what lies below. Begin with `client`; `base` has what both share.
"""
