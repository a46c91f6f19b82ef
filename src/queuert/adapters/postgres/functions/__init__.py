"""The SQL functions, one family of operations in each file.

Functions are code, not history: change them here, in place. All of them together are one set. Its
digest is part of their names (`queuert_claim_1a2b3c4d`), so a changed set is installed beside the
ones before, and processes of an older version go on with theirs. `installation.py` builds the set,
`operations/migrating.py` installs it.

- A function must accept rows that older functions wrote, and write rows that they accept, for as
  long as the migrations say that the older version works (`-- oldest:`).
- Names have at most 14 characters: with the longest prefix and the digest that makes 63 bytes, and
  PostgreSQL cuts off the rest without an error.
- A function that a statement calls is a list of steps: docs/design/postgres-storage.md names them,
  and has the order of all locks. Steps are volatile PL/pgSQL without settings and EXCEPTION blocks,
  and are called once for a batch, not for each job. No function has more than 150 lines or 25
  variables.
- Functions are volatile: each of their statements sees what was committed before it, also in the
  middle of a call (under READ COMMITTED). Those that only read and need one snapshot are stable.
- Sessions keep the plans of these statements, and the small tables grow from empty to a million
  rows and back within minutes. A plan made for an empty table would scan or hash all of it, and be
  kept until the next ANALYZE. So every function that is called from outside has `{steady}`: one
  plan that finds each row by an index. For the same reason, never join an array to an array: that
  is a loop in a loop.
- A statement ends with `$body$;` at the end of a line. `{name}` is the name of a table or function.
"""
