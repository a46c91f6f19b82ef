-- Why a job is not running.

-- Everything that decides whether a claim would take the current job of a chain. Unlike all others,
-- this function is stable: it reads everything in the snapshot of the caller's statement. Nothing is
-- locked. Times in JSON are microseconds since 1970.
--
-- Primary keys, job_chain; the heads of `ready` and `later` for each type; scans `worker` and
-- `pause`, and `running` if the job is due. `p_edges`: blockers that are looked at; `p_shown`: that are returned;
-- `p_ahead`: due jobs of each type. A claim moves a thousand due jobs of a type from `later` to
-- `ready` before it looks, so as many are read here.
CREATE OR REPLACE FUNCTION {look_around}(
    p_chain text, p_seen_every double precision, p_overdue double precision, p_edges integer, p_shown integer, p_ahead integer
) RETURNS TABLE ({chain_types}, now timestamptz, blockers text, workers text, others_alive bigint, running text, due text, last_handled text, pauses text)
LANGUAGE plpgsql STABLE {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz := {clock};
    v_id uuid;
    v_type text;
    v_status text;
    v_due boolean;
    v_worker text;
    v_blockers text;
    v_workers text;
    v_others bigint;
    v_running text;
    v_ready text;
BEGIN
    SELECT c.id, c.type_name, c.status, c.status = 'pending' AND r.job_id IS NULL AND c.scheduled_at <= v_now, r.worker
    INTO v_id, v_type, v_status, v_due, v_worker
    FROM {job} AS c LEFT JOIN {running} AS r ON r.job_id = c.id
    WHERE c.chain_id = p_chain::uuid ORDER BY c.chain_index DESC LIMIT 1;
    IF v_id IS NULL THEN
        RETURN;
    END IF;
    IF v_status = 'blocked' THEN
        SELECT json_agg(json_build_array(shown.chain_id, shown.chain_type, shown.status) ORDER BY shown.n) INTO v_blockers FROM (
            SELECT b.chain_id, j.chain_type, CASE WHEN r.job_id IS NULL THEN j.status ELSE 'running' END,
                row_number() OVER (ORDER BY j.status NOT IN ('failed', 'cancelled', 'expired'), b.position)
            FROM (
                SELECT e.chain_id, e.position FROM {blocker} AS e WHERE e.job_id = v_id ORDER BY e.position LIMIT p_edges
            ) AS b
            CROSS JOIN LATERAL (
                SELECT c.id, c.chain_type, c.status FROM {job} AS c WHERE c.chain_id = b.chain_id ORDER BY c.chain_index DESC LIMIT 1
            ) AS j
            LEFT JOIN {running} AS r ON r.job_id = j.id
            WHERE j.status <> 'completed'
            ORDER BY 4 LIMIT p_shown
        ) AS shown (chain_id, chain_type, status, n);
    END IF;
    SELECT
        json_agg(json_build_array(
            k.id, (extract(epoch FROM k.registered_at) * 1000000)::bigint, (extract(epoch FROM k.seen_at) * 1000000)::bigint, k.lock_key, k.process, k.about, k.state
        )) FILTER (WHERE k.types IS NULL OR v_type = ANY (k.types) OR k.id = v_worker),
        count(*) FILTER (WHERE k.state = 'alive' AND v_type <> ALL (k.types) AND k.id IS DISTINCT FROM v_worker)
    INTO v_workers, v_others
    FROM {known_workers}(NULL, p_seen_every, p_overdue, false) AS k;
    IF v_due THEN
        SELECT json_agg(json_build_array(g.type_name, g.worker, g.number, g.oldest, (extract(epoch FROM g.since) * 1000000)::bigint, g.queue)) INTO v_running FROM (
            SELECT r.type_name, r.worker, count(*), min(r.started_at), (array_agg(r.job_id ORDER BY r.started_at, r.job_id))[1], r.queue
            FROM {running} AS r GROUP BY r.type_name, r.worker, r.queue
        ) AS g (type_name, worker, number, since, oldest, queue);
        SELECT json_agg(json_build_array(t.name, d.priority, (extract(epoch FROM d.scheduled_at) * 1000000)::bigint, d.id)) INTO v_ready
        FROM (
            SELECT DISTINCT u.name FROM {worker_about} AS a CROSS JOIN LATERAL unnest(a.types) AS u (name) WHERE v_type = ANY (a.types)
        ) AS t (name)
        CROSS JOIN LATERAL (
            SELECT both_tables.* FROM (
                (SELECT e.priority, e.scheduled_at, e.id FROM {ready} AS e WHERE e.type_name = t.name
                    ORDER BY e.priority, e.scheduled_at, e.id LIMIT p_ahead)
                UNION ALL
                (SELECT l.priority, l.scheduled_at, l.id FROM {later} AS l WHERE l.type_name = t.name AND l.scheduled_at <= v_now
                    ORDER BY l.scheduled_at, l.id LIMIT 1000)
            ) AS both_tables ORDER BY 1, 2, 3 LIMIT p_ahead
        ) AS d (priority, scheduled_at, id);
    END IF;
    -- As in read_chains, which is volatile and would read in a later snapshot.
    RETURN QUERY
    SELECT {first_columns}, {current_columns}, v_now, v_blockers, v_workers, v_others, v_running, v_ready,
        (
            SELECT json_build_array((extract(epoch FROM l.seen_at) * 1000000)::bigint, l.host, l.release)::text
            FROM {last_handled} AS l WHERE l.type_name = v_type
        ),
        (
            SELECT json_agg(json_build_array(
                p.scope, p.name, (extract(epoch FROM p.since) * 1000000)::bigint, (extract(epoch FROM p.until) * 1000000)::bigint, p.reason,
                p.paused_by, p.cancel_running
            ))::text
            FROM {pause} AS p WHERE p.until IS NULL OR p.until > v_now
        )
    FROM {job} AS first
    LEFT JOIN {running} AS first_run ON first_run.job_id = first.id
    CROSS JOIN {job} AS current
    LEFT JOIN {running} AS current_run ON current_run.job_id = current.id
    WHERE first.id = p_chain::uuid AND current.id = v_id;
END $body$;
