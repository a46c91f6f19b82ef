-- Who did what by hand. Rows are added and read, never changed, and removed when they are old.

-- Locks the old rows that it removes. It skips those that another one removes. Primary key.
-- write: record
WITH this AS MATERIALIZED (SELECT {clock} AS now),
old AS MATERIALIZED (
    SELECT a.id FROM {audit} AS a
    WHERE a.id = ANY (ARRAY(
        SELECT oldest.id FROM this CROSS JOIN (SELECT id, at FROM {audit} ORDER BY id LIMIT :limit::integer) AS oldest
        WHERE oldest.at < this.now - make_interval(secs => :kept::double precision)
    ))
    FOR UPDATE SKIP LOCKED
),
forgotten AS (DELETE FROM {audit} WHERE id = ANY (ARRAY(SELECT old.id FROM old)))
INSERT INTO {audit} (at, action, target, chain_id, done_by, reason, details)
SELECT this.now, e.action, e.target, e.chain_id, e.done_by, e.reason, e.details
FROM this CROSS JOIN unnest(
    :actions::text[], :targets::text[], :chains::text[], :by::text[], :reasons::text[], :details::text[]
) WITH ORDINALITY AS e (action, target, chain_id, done_by, reason, details, n)
ORDER BY e.n;

-- Primary key.
-- read: list
SELECT id, at, action, target, chain_id, done_by, reason, details FROM {audit}
WHERE id < :after::bigint ORDER BY id DESC LIMIT :limit::integer;

-- Index audit_chain.
-- read: list_of_chain
SELECT id, at, action, target, chain_id, done_by, reason, details FROM {audit}
WHERE chain_id = :chain::text AND id < :after::bigint ORDER BY id DESC LIMIT :limit::integer;
