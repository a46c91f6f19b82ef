"""Bulk operations: plans, pages, and the library's own jobs that carry them out.

Begin with `pages`, which changes one page of chains; `service` runs beside a worker.
"""
