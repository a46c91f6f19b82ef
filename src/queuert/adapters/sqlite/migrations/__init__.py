"""The schema, one file for each version. A file that was released is never changed again.

Processes of older versions work with the newer tables for a while, for example during a deploy. So:

- A new column is nullable or has a default: older statements do not name it when they insert.
- Nothing that older statements use is renamed, dropped or given another type.
- The view `jobs` is part of the public promise: it is only ever extended, by new columns at its
  end, and it uses tables only.
- `-- oldest: N` in each file is the oldest version whose library still works with these tables. A
  library below it gets `SchemaTooNew`. Raise it only where the rules above cannot be kept.
- A statement ends with a semicolon at the end of a line.
"""
