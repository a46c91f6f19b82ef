"""The statements, one file for each operation. `queuert.sql.statement` describes their format."""
