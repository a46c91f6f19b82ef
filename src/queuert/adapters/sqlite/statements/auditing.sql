-- Who did what by hand. Rows are added and read, never changed, and removed when they are old.

-- The latest row stays: its number must not be given again. Primary key.
-- write: forget
DELETE FROM {prefix}audit WHERE at < :before AND id IN (
    SELECT id FROM {prefix}audit WHERE id < (SELECT max(id) FROM {prefix}audit) ORDER BY id LIMIT :limit
);

-- write: record
INSERT INTO {prefix}audit (at, action, target, chain_id, done_by, reason, details)
SELECT :now, value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5
FROM json_each(:entries) ORDER BY key;

-- Primary key.
-- read: list
SELECT id, at, action, target, chain_id, done_by, reason, details FROM {prefix}audit
WHERE id < :after ORDER BY id DESC LIMIT :limit;

-- Index audit_chain.
-- read: list_of_chain
SELECT id, at, action, target, chain_id, done_by, reason, details FROM {prefix}audit
WHERE chain_id = :chain AND id < :after ORDER BY id DESC LIMIT :limit;
