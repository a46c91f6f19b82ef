"""The statements, one file for each operation; `queuert.sql.statement` says how they are
written.
"""
