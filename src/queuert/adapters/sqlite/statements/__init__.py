"""The statements, one file for each operation. `queuert.adapters.sql.statement` describes their
format.
"""
