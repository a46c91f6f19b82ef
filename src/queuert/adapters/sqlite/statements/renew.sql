-- Extending and holding claims. One statement, which holds the write lock only while it runs.
-- Primary key.

-- `leases` holds [id, token, end of the lease].
-- write: extend
UPDATE {prefix}job SET leased_until = json_extract(lease.value, '$[2]')
FROM json_each(:leases) AS lease
WHERE {prefix}job.id = json_extract(lease.value, '$[0]')
    AND {prefix}job.token = json_extract(lease.value, '$[1]')
RETURNING id, token;

-- write: begin_alone
UPDATE {prefix}job SET ordinal = NULL WHERE id = :id AND token = :token RETURNING id;

-- Nothing is locked here: its transaction has the write lock.
-- read: hold
SELECT 1 FROM {prefix}job WHERE id = :id AND token = :token;
