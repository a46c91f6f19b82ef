"""The tools of operators: the command, the page and the terminal, over texts and decisions they
share.

May import everything below; only the command may import adapters. Begin with `changes`.
"""
