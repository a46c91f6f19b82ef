-- Freeing very many dependents in several transactions.
-- oldest: 1

-- Chains that are completed, but have dependents that still wait. Each edge of the chain to a job
-- from `next_id` on is still to be counted down (index blocker_chain). Almost always empty. Without
-- foreign keys: an older version that deletes a chain does not know of this table.
CREATE TABLE {prefix}unblocking (
    chain_id TEXT NOT NULL PRIMARY KEY,
    next_id TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- 1: the chain was completed when the job was stored, so the job never waited for it. NULL for edges
-- that older versions have written.
ALTER TABLE {prefix}blocker ADD COLUMN done INTEGER;
