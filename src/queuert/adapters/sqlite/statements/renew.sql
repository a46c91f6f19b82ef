-- Extending and holding claims. One statement, so the lock is held no longer than it runs. By primary key.

-- `leases` holds [id, token, end of the lease].
-- write: extend
UPDATE {prefix}job SET leased_until = json_extract(lease.value, '$[2]')
FROM json_each(:leases) AS lease
WHERE {prefix}job.id = json_extract(lease.value, '$[0]')
    AND {prefix}job.token = json_extract(lease.value, '$[1]')
RETURNING id, token;

-- Nothing is locked here: the transaction that it is in is the only one that writes.
-- read: hold
SELECT 1 FROM {prefix}job WHERE id = :id AND token = :token;
