"""The tables, one file for each version. A file that was released is never changed again.

Functions are not in here, but in `functions/` (versions 2 to 6 had only functions).

During a rolling deploy, processes of older versions work with the newer tables. So:

- A new column is nullable or has a default: older functions do not name it when they insert.
- Nothing that older functions use is renamed, dropped or given another type.
- The view `jobs` is part of the public promise: it is only ever extended, by CREATE OR REPLACE VIEW
  with the new columns at the end, and it uses tables only, never functions.
- `-- oldest: N` in each file is the oldest version whose library still works with these tables. A
  library below it gets `SchemaTooNew`. Raise it only where the rules above cannot be kept.
- A statement ends with a semicolon at the end of a line, outside of `$body$`.
"""
