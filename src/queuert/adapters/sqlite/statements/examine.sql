-- Comparing what must agree, and repairing it. The reads lock nothing, and each is one snapshot. They
-- return every row that they have looked at, in the order of an index: what is wrong with it (or
-- NULL), its id, the facts, and where the next page begins.

-- Index job_status.
-- read: running
SELECT
    CASE WHEN token IS NULL OR leased_by IS NULL OR leased_until IS NULL THEN 'unleased' WHEN ready IS NOT NULL THEN 'stray' END,
    id,
    CASE WHEN ready IS NULL THEN 'running, but its claim has no end or no owner' ELSE 'in the queue, although it is running' END,
    'queue',
    json_array(id)
FROM {prefix}job INDEXED BY {prefix}job_status
WHERE status = 'running' AND status <> 'completed' AND id > :after_1
ORDER BY id
LIMIT :limit;

-- Index job_ready.
-- read: ready
SELECT CASE WHEN status <> 'pending' THEN 'stray' END, id, 'in the queue, although it is ' || status, 'queue',
    json_array(type_name, priority, scheduled_at, id)
FROM {prefix}job INDEXED BY {prefix}job_ready
WHERE ready = 1 AND (type_name, priority, scheduled_at, id)
    > (:after_1, CAST(:after_2 AS INTEGER), CAST(:after_3 AS INTEGER), :after_4)
ORDER BY type_name, priority, scheduled_at, id
LIMIT :limit;

-- Index job_line.
-- read: line
SELECT CASE WHEN status <> 'pending' THEN 'stray' END, id, 'in the queue, although it is ' || status, 'queue',
    json_array(lane, priority, scheduled_at, id)
FROM {prefix}job INDEXED BY {prefix}job_line
WHERE ready = 2 AND (lane, priority, scheduled_at, id)
    > (:after_1, CAST(:after_2 AS INTEGER), CAST(:after_3 AS INTEGER), :after_4)
ORDER BY lane, priority, scheduled_at, id
LIMIT :limit;

-- Index job_scheduled.
-- read: later
SELECT CASE WHEN status <> 'pending' THEN 'stray' END, id, 'in the queue, although it is ' || status, 'queue',
    json_array(type_name, scheduled_at, rowid)
FROM {prefix}job INDEXED BY {prefix}job_scheduled
WHERE ready = 0 AND (type_name, scheduled_at, rowid) > (:after_1, CAST(:after_2 AS INTEGER), CAST(:after_3 AS INTEGER))
ORDER BY type_name, scheduled_at, rowid
LIMIT :limit;

-- Index job_status.
-- read: pending
SELECT CASE WHEN ready IS NULL THEN 'not_queued' WHEN token IS NOT NULL THEN 'stray' END, id,
    CASE WHEN ready IS NULL THEN 'pending, but in no queue' ELSE 'claimed, although it is pending' END, 'claim', json_array(id)
FROM {prefix}job INDEXED BY {prefix}job_status
WHERE status = 'pending' AND status <> 'completed' AND id > :after_1
ORDER BY id
LIMIT :limit;

-- Blocked jobs, with all that they wait for. While one of these chains has a work item, the count may
-- be behind. Index job_status, primary keys, index job_chain.
-- read: blocked
SELECT
    CASE WHEN page.missing IS NOT NULL THEN 'blocker_missing' WHEN page.waiting <> page.blockers_left AND NOT page.being_freed THEN 'miscounted' END,
    page.id,
    CASE WHEN page.missing IS NOT NULL THEN 'waits for chain ' || page.missing || ', which is not stored'
        ELSE 'waits for ' || page.waiting || ' chains, but counts ' || page.blockers_left END,
    NULL,
    json_array(page.id)
FROM (
    SELECT job.id, job.blockers_left,
        count(edge.chain_id) FILTER (WHERE edge.done IS NOT 1 AND last.status IS NOT 'completed') AS waiting,
        min(edge.chain_id) FILTER (WHERE last.id IS NULL) AS missing,
        count(item.chain_id) > 0 AS being_freed
    FROM (
        SELECT id, blockers_left FROM {prefix}job INDEXED BY {prefix}job_status
        WHERE status = 'blocked' AND status <> 'completed' AND id > :after_1 ORDER BY id LIMIT :limit
    ) AS job
    LEFT JOIN {prefix}blocker AS edge ON edge.job_id = job.id
    LEFT JOIN {prefix}job AS last ON last.rowid = (
        SELECT current.rowid FROM {prefix}job AS current WHERE current.chain_id = edge.chain_id ORDER BY current.chain_index DESC LIMIT 1
    )
    LEFT JOIN {prefix}unblocking AS item ON item.chain_id = edge.chain_id
    GROUP BY job.id
) AS page
ORDER BY page.id;

-- Primary keys.
-- read: keys
SELECT
    CASE WHEN job.id IS NULL THEN iif(held.outlives, NULL, 'stray_key') WHEN job.chain_type <> held.chain_type OR job.dedup_key IS NOT held.key THEN 'wrong_key' END,
    held.chain_id,
    'key ' || quote(held.key) || ' of ' || held.chain_type,
    json_array(held.chain_type, held.key),
    json_array(held.chain_type, held.key)
FROM (
    SELECT chain_type, key, chain_id, ended IS NOT NULL AND window_chain = chain_id AS outlives FROM {prefix}dedup
    WHERE (chain_type, key) > (:after_1, :after_2) ORDER BY chain_type, key LIMIT :limit
) AS held
LEFT JOIN {prefix}job AS job ON job.id = held.chain_id AND job.chain_index = 0
ORDER BY held.chain_type, held.key;

-- All edges. Primary keys.
-- read: edges
SELECT
    CASE WHEN job.id IS NULL THEN 'stray_edge'
        WHEN first.id IS NULL AND job.status IN ('pending', 'running', 'failed') THEN 'blocker_missing' END,
    edge.job_id,
    CASE WHEN job.id IS NULL THEN 'waits for chain ' || edge.chain_id
        ELSE 'needs the output of chain ' || edge.chain_id || ', which is not stored' END,
    CAST(edge.position AS TEXT),
    json_array(edge.job_id, edge.position)
FROM (
    SELECT job_id, position, chain_id FROM {prefix}blocker
    WHERE (job_id, position) > (:after_1, CAST(:after_2 AS INTEGER)) ORDER BY job_id, position LIMIT :limit
) AS edge
LEFT JOIN {prefix}job AS job ON job.id = edge.job_id
LEFT JOIN {prefix}job AS first ON first.id = edge.chain_id AND first.chain_index = 0
ORDER BY edge.job_id, edge.position;

-- All jobs: their places in their chains, and claims of jobs that do not run. Primary key, index job_chain.
-- read: jobs
SELECT
    CASE
        WHEN job.token IS NOT NULL AND job.status NOT IN ('running', 'pending') THEN 'stray'
        WHEN first.type_name IS NOT job.chain_type OR (job.chain_index = 0) <> (job.id = job.chain_id)
            OR (job.chain_index > 0 AND (before.continued_to IS NOT job.id OR before.status IS NOT 'completed'))
            OR job.continued_to IS NOT following.id
        THEN 'broken_chain'
    END,
    job.id,
    CASE WHEN job.token IS NOT NULL AND job.status NOT IN ('running', 'pending') THEN 'claimed, although it is ' || job.status
        ELSE 'number ' || job.chain_index || ' of chain ' || job.chain_id || ' does not fit to the jobs before and after it' END,
    'claim',
    json_array(job.id)
FROM (SELECT * FROM {prefix}job WHERE id > :after_1 ORDER BY id LIMIT :limit) AS job
LEFT JOIN {prefix}job AS first ON first.id = job.chain_id AND first.chain_index = 0
LEFT JOIN {prefix}job AS before ON before.chain_id = job.chain_id AND before.chain_index = job.chain_index - 1
LEFT JOIN {prefix}job AS following ON following.chain_id = job.chain_id AND following.chain_index = job.chain_index + 1
ORDER BY job.id;

-- The repairs run under the write lock, and look again. Primary keys.
-- write: leave_queue
UPDATE {prefix}job SET ready = NULL WHERE id = :id AND +status <> 'pending' AND ready IS NOT NULL RETURNING id;

-- write: drop_claim
UPDATE {prefix}job SET token = NULL, leased_by = NULL, leased_until = NULL, queue = NULL
WHERE id = :id AND +status <> 'running' AND token IS NOT NULL RETURNING id;

-- write: lease
UPDATE {prefix}job SET leased_until = coalesce(leased_until, :until), leased_by = coalesce(leased_by, 'unknown'),
    token = coalesce(token, :token)
WHERE id = :id AND +status = 'running' AND (token IS NULL OR leased_by IS NULL OR leased_until IS NULL) RETURNING id;

-- write: queue
UPDATE {prefix}job SET ready = (scheduled_at <= :now) * (1 + (lane IS NOT NULL)) WHERE id = :id AND +status = 'pending' AND ready IS NULL RETURNING id;

-- As in unblocking.count_again, but a chain that does not exist is waited for.
-- write: count
UPDATE {prefix}job SET
    blockers_left = found.waiting,
    status = CASE WHEN found.waiting > 0 THEN 'blocked' ELSE 'pending' END,
    scheduled_at = CASE WHEN found.waiting = 0 THEN max(scheduled_at, :now) ELSE scheduled_at END,
    ready = CASE WHEN found.waiting = 0 THEN (scheduled_at <= :now) * (1 + (lane IS NOT NULL)) END
FROM (
    SELECT count(edge.chain_id) FILTER (WHERE edge.done IS NOT 1 AND last.status IS NOT 'completed') AS waiting,
        count(item.chain_id) AS items
    FROM {prefix}blocker AS edge
    LEFT JOIN {prefix}job AS last ON last.rowid = (
        SELECT current.rowid FROM {prefix}job AS current WHERE current.chain_id = edge.chain_id ORDER BY current.chain_index DESC LIMIT 1
    )
    LEFT JOIN {prefix}unblocking AS item ON item.chain_id = edge.chain_id
    WHERE edge.job_id = :id
) AS found
WHERE {prefix}job.id = :id AND +{prefix}job.status = 'blocked' AND found.items = 0 AND found.waiting <> blockers_left
RETURNING id;

-- write: drop_edge
DELETE FROM {prefix}blocker WHERE job_id = :id AND position = CAST(:position AS INTEGER)
    AND NOT EXISTS (SELECT 1 FROM {prefix}job AS job WHERE job.id = :id)
RETURNING job_id;

-- write: drop_key
DELETE FROM {prefix}dedup WHERE chain_type = :chain_type AND key = :key AND chain_id = :id
    AND NOT (ended IS NOT NULL AND window_chain = chain_id)
    AND NOT EXISTS (SELECT 1 FROM {prefix}job AS job WHERE job.id = :id AND job.chain_index = 0)
RETURNING chain_id;

-- read: journal_mode
PRAGMA journal_mode;

-- read: file_size
SELECT page_count * page_size, freelist_count * page_size
FROM pragma_page_count, pragma_page_size, pragma_freelist_count;

-- Reads the whole file, and compares the indexes with their tables.
-- read: integrity
PRAGMA integrity_check(20);

-- Running jobs by queue and worker. Index job_running.
-- read: running_groups
SELECT type_name, leased_by, count(*), id, min(last_attempt_at), queue
FROM {prefix}job INDEXED BY {prefix}job_running WHERE status = 'running' AND leased_by IS NOT NULL GROUP BY type_name, leased_by, queue;
