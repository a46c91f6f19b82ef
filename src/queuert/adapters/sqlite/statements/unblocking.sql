-- Freeing many dependents in several transactions. Runs under the write lock.

-- The first edges of a chain from a job on, without those that never waited. Index blocker_chain.
-- read: edges
SELECT job_id FROM {prefix}blocker
WHERE chain_id = :chain AND job_id >= :first AND done IS NOT 1
ORDER BY job_id
LIMIT :number;

-- read: item
SELECT chain_id, next_id FROM {prefix}unblocking ORDER BY chain_id LIMIT 1;

-- write: put
INSERT INTO {prefix}unblocking (chain_id, next_id) VALUES (:chain, :next)
ON CONFLICT DO UPDATE SET next_id = excluded.next_id;

-- write: delete
DELETE FROM {prefix}unblocking WHERE chain_id = :chain;

-- Whether there are other items.
-- read: more
SELECT EXISTS (SELECT 1 FROM {prefix}unblocking);

-- `jobs` holds [id, number of edges], as in settle.unblock. Primary key.
-- write: count_down
UPDATE {prefix}job SET
    blockers_left = blockers_left - json_extract(freed.value, '$[1]'),
    status = CASE WHEN blockers_left > json_extract(freed.value, '$[1]') THEN 'blocked' ELSE 'pending' END,
    scheduled_at = CASE WHEN blockers_left <= json_extract(freed.value, '$[1]')
        THEN max(scheduled_at, :now) ELSE scheduled_at END,
    ready = CASE WHEN blockers_left <= json_extract(freed.value, '$[1]') THEN (scheduled_at <= :now) * (1 + (lane IS NOT NULL)) END
FROM json_each(:jobs) AS freed
WHERE {prefix}job.id = json_extract(freed.value, '$[0]') AND {prefix}job.status = 'blocked'
RETURNING id, type_name, ready;

-- The blockers of these jobs are counted again, after the item was moved. So an edge that an older
-- version has stored after the completion frees nothing too early. Primary keys, index job_chain.
-- write: count_again
UPDATE {prefix}job SET
    blockers_left = waiting.number,
    status = CASE WHEN waiting.number > 0 THEN 'blocked' ELSE 'pending' END,
    scheduled_at = CASE WHEN waiting.number = 0 THEN max(scheduled_at, :now) ELSE scheduled_at END,
    ready = CASE WHEN waiting.number = 0 THEN (scheduled_at <= :now) * (1 + (lane IS NOT NULL)) END
FROM (
    SELECT asked.value AS id, (
        SELECT count(*)
        FROM {prefix}blocker AS edge
        CROSS JOIN {prefix}job AS current ON current.rowid = (
            SELECT last.rowid FROM {prefix}job AS last WHERE last.chain_id = edge.chain_id
            ORDER BY last.chain_index DESC LIMIT 1
        )
        WHERE edge.job_id = asked.value AND edge.done IS NOT 1 AND (
            current.status <> 'completed' OR EXISTS (
                SELECT 1 FROM {prefix}unblocking AS item
                WHERE item.chain_id = edge.chain_id AND item.next_id <= edge.job_id
            )
        )
    ) AS number
    FROM json_each(:jobs) AS asked
) AS waiting
WHERE {prefix}job.id = waiting.id AND {prefix}job.status = 'blocked'
RETURNING id, type_name, ready;
