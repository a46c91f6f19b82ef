-- Why a job is not running. One statement, so one snapshot.

-- Everything that decides whether a claim would take the current job of a chain. Primary keys, and
-- indexes blocker (job_id), job_chain, job_ready, job_scheduled; job_running, which has only running
-- jobs; scans the workers and the pauses, which are few. A claim promotes very many due jobs before it looks, so a
-- thousand of them are read here.
-- read: circumstances
SELECT {first_columns}, {current_columns},
    CASE WHEN current.status = 'blocked' THEN (
        SELECT json_group_array(json_array(shown.chain_id, shown.type_name, shown.status)) FROM (
            SELECT edge.chain_id, head.type_name, tail.status
            FROM (
                SELECT chain_id, position FROM {prefix}blocker WHERE job_id = current.id ORDER BY position LIMIT :edges
            ) AS edge
            CROSS JOIN {prefix}job AS head ON head.id = edge.chain_id
            CROSS JOIN {prefix}job AS tail ON tail.rowid = (
                SELECT last.rowid FROM {prefix}job AS last WHERE last.chain_id = edge.chain_id ORDER BY last.chain_index DESC LIMIT 1
            )
            WHERE tail.status <> 'completed'
            ORDER BY tail.status NOT IN ('failed', 'cancelled', 'expired'), edge.position LIMIT :shown
        ) AS shown
    ) END,
    (
        SELECT json_group_array(json_array(
            worker.id, worker.registered_at, worker.seen_at, worker.horizon, worker.process, worker.has_file, worker.about, worker.stopped_at
        )) FROM {prefix}worker AS worker
    ),
    CASE WHEN current.status = 'pending' AND current.scheduled_at <= :now THEN (
        SELECT json_group_array(json_array(busy.type_name, busy.leased_by, busy.number, busy.id, busy.since, busy.queue)) FROM (
            SELECT type_name, leased_by, count(*) AS number, id, min(last_attempt_at) AS since, queue
            FROM {prefix}job INDEXED BY {prefix}job_running WHERE status = 'running' GROUP BY type_name, leased_by, queue
        ) AS busy
    ) END,
    CASE WHEN current.status = 'pending' AND current.scheduled_at <= :now THEN (
        SELECT json_group_array(json_array(due.type_name, due.priority, due.scheduled_at, due.id))
        FROM (
            SELECT DISTINCT kind.value ->> 'name' AS name
            FROM {prefix}worker AS worker, json_each(worker.about, '$.queues') AS queue, json_each(queue.value, '$.types') AS kind
            WHERE EXISTS (
                SELECT 1 FROM json_each(worker.about, '$.queues') AS own_queue, json_each(own_queue.value, '$.types') AS own
                WHERE own.value ->> 'name' = current.type_name
            )
        ) AS asked
        CROSS JOIN {prefix}job AS due ON due.rowid IN (
            SELECT ahead.rowid FROM (
                SELECT * FROM (
                    SELECT rowid, priority, scheduled_at, id FROM {prefix}job
                    WHERE ready = 1 AND type_name = asked.name AND scheduled_at <= :now
                    ORDER BY priority, scheduled_at, id LIMIT :ahead
                )
                UNION ALL
                SELECT * FROM (
                    SELECT rowid, priority, scheduled_at, id FROM {prefix}job
                    WHERE ready = 0 AND type_name = asked.name AND scheduled_at <= :now
                    ORDER BY scheduled_at LIMIT 1000
                )
            ) AS ahead
            ORDER BY ahead.priority, ahead.scheduled_at, ahead.id LIMIT :ahead
        )
    ) END,
    (
        SELECT json_array(handled.seen_at, handled.host, handled.release) FROM {prefix}last_handled AS handled
        WHERE handled.type_name = current.type_name
    ),
    (
        SELECT json_group_array(json_array(
            pause.scope, pause.name, pause.since, pause.until, pause.reason, pause.paused_by, json(iif(pause.cancel_running, 'true', 'false'))
        )) FROM {prefix}pause AS pause WHERE pause.until IS NULL OR pause.until > :now
    )
FROM {prefix}job AS first
CROSS JOIN {prefix}job AS current ON current.rowid = {current_of_first}
WHERE first.id = :chain AND first.chain_index = 0;
