-- settle.

-- Rows of kind 'held' (position), 'created' (position of the settlement, and the continuation), 'unblocked'; or one of kind 'problem', and then
-- nothing is written. Locks: running rows by id, jobs by id, then the current jobs of chains that continuations wait for, then dependents.
CREATE FUNCTION {settle}(
    p_ids text[], p_tokens bigint[], p_statuses text[], p_outputs text[], p_errors text[], p_at timestamptz[],
    p_after double precision[], p_give_back boolean[], p_workers text[],
    p_next_positions integer[], p_next_ids text[], p_next_types text[], p_next_inputs text[], p_next_priorities integer[],
    p_next_at timestamptz[], p_next_after double precision[], p_next_deadline_at timestamptz[],
    p_next_deadline_after double precision[], p_next_traces text[], p_next_chain_traces text[],
    p_edge_jobs text[], p_edge_chains text[], p_edge_types text[], p_edge_traces text[], p_check_ids boolean
) RETURNS TABLE (kind text, place integer, id text, type_name text, status text, ready boolean, problem text)
LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_positions integer[];
    v_ids uuid[];
    v_started timestamptz[];
    v_loose uuid[];
    v_next uuid[] := '{}';
    v_problem jsonb;
    v_completed uuid[];
    v_put_back uuid[];
BEGIN
    SELECT array_agg(held.n), array_agg(held.id), array_agg(held.started_at) INTO v_positions, v_ids, v_started
    FROM (
        SELECT asked.n::integer AS n, r.job_id AS id, r.started_at
        FROM unnest(p_ids::uuid[], p_tokens) WITH ORDINALITY AS asked (id, token, n)
        JOIN {running} AS r ON r.job_id = asked.id AND r.token = asked.token
        ORDER BY r.job_id, asked.n FOR UPDATE OF r
    ) AS held;
    -- Without a token: any job that has not ended. Its holder has usually locked it before.
    v_loose := array(
        SELECT DISTINCT asked.id FROM unnest(p_ids::uuid[], p_tokens) AS asked (id, token)
        WHERE asked.token IS NULL AND asked.id <> ALL (coalesce(v_ids, '{}'))
    );
    IF cardinality(v_loose) > 0 THEN
        PERFORM {lock_jobs}(v_loose);
        SELECT v_positions || array_agg(held.n), v_ids || array_agg(held.id), v_started || array_agg(held.started_at)
        INTO v_positions, v_ids, v_started
        FROM (
            SELECT min(asked.n)::integer AS n, j.id, r.started_at
            FROM unnest(p_ids::uuid[], p_tokens) WITH ORDINALITY AS asked (id, token, n)
            JOIN {job} AS j ON j.id = asked.id AND j.status IN ('blocked', 'pending')
            LEFT JOIN {running} AS r ON r.job_id = j.id
            WHERE asked.token IS NULL AND asked.id = ANY (v_loose)
            GROUP BY j.id, r.started_at
        ) AS held;
    END IF;
    IF coalesce(cardinality(v_ids), 0) = 0 THEN
        RETURN;
    END IF;
    -- The same job twice in one call: only the first counts.
    SELECT array_agg(held.n), array_agg(held.id), array_agg(held.started_at) INTO v_positions, v_ids, v_started
    FROM (
        SELECT DISTINCT ON (h.id) h.n, h.id, h.started_at
        FROM unnest(v_positions, v_ids, v_started) AS h (n, id, started_at) ORDER BY h.id, h.n
    ) AS held;
    PERFORM FROM {job} WHERE id = ANY (v_ids) ORDER BY id FOR NO KEY UPDATE;
    v_now := {clock};

    IF cardinality(p_next_ids) > 0 THEN
        v_next := array(
            SELECT n.id FROM unnest(p_next_positions, p_next_ids::uuid[]) AS n (place, id) WHERE n.place = ANY (v_positions)
        );
        IF p_check_ids THEN
            SELECT jsonb_build_object('problem', 'id_exists', 'job_id', asked.id) INTO v_problem
            FROM (SELECT n.id, count(*) AS times FROM unnest(v_next) AS n (id) GROUP BY n.id) AS asked
            WHERE asked.times > 1 OR EXISTS (SELECT FROM {job} AS j WHERE j.id = asked.id) LIMIT 1;
        END IF;
        IF v_problem IS NULL AND cardinality(p_edge_jobs) > 0 THEN
            SELECT {check_edges}(
                array_agg(e.job_id ORDER BY e.n), array_agg(j.chain_id ORDER BY e.n), array_agg(e.chain_id ORDER BY e.n),
                array_agg(e.type_name ORDER BY e.n), '{}', '{}'
            ) INTO v_problem
            FROM unnest(p_edge_jobs::uuid[], p_edge_chains::uuid[], p_edge_types) WITH ORDINALITY AS e (job_id, chain_id, type_name, n)
            JOIN unnest(p_next_positions, p_next_ids::uuid[]) AS n (place, id) ON n.id = e.job_id
            JOIN unnest(v_positions, v_ids) AS h (n, id) ON h.n = n.place
            JOIN {job} AS j ON j.id = h.id
            HAVING count(*) > 0;
        END IF;
        IF v_problem IS NOT NULL THEN
            RETURN QUERY SELECT 'problem', NULL::integer, NULL::text, NULL::text, NULL::text, NULL::boolean, v_problem::text;
            RETURN;
        END IF;
    END IF;

    IF cardinality(v_loose) > 0 THEN
        PERFORM {land}(v_ids);
    ELSE
        DELETE FROM {running} WHERE job_id = ANY (v_ids);
    END IF;
    WITH held AS (
        SELECT h.id, h.started_at, x.*
        FROM unnest(v_positions, v_ids, v_started) AS h (n, id, started_at)
        JOIN unnest(p_statuses, p_outputs, p_errors, p_at, p_after, p_give_back, p_workers) WITH ORDINALITY
            AS x (status, output, error, at_time, after_time, give_back, worker, n) ON x.n = h.n
    ), ended AS (
        UPDATE {job} AS j SET
            status = held.status,
            resting = CASE WHEN held.status IN ('failed', 'cancelled', 'expired') THEN held.status END,
            output = held.output::json,
            continued_to = next.id,
            completed_at = CASE WHEN held.status <> 'pending' THEN v_now END,
            completed_by = CASE WHEN held.status <> 'pending' THEN held.worker END,
            attempt = j.attempt + (held.started_at IS NOT NULL AND NOT held.give_back)::integer,
            last_attempt_at = coalesce(held.started_at, j.last_attempt_at),
            last_error = coalesce(held.error::json, j.last_error),
            scheduled_at = CASE WHEN held.status = 'pending' AND NOT held.give_back
                THEN coalesce(held.at_time, v_now + make_interval(secs => coalesce(held.after_time, 0)))
                ELSE j.scheduled_at END
        FROM held LEFT JOIN unnest(p_next_positions, p_next_ids::uuid[]) AS next (place, id) ON next.place = held.n
        WHERE j.id = held.id
        RETURNING j.id, j.chain_id, j.status, j.continued_to, j.dependents
    )
    SELECT
        array_agg(ended.chain_id) FILTER (WHERE ended.status = 'completed' AND ended.continued_to IS NULL AND ended.dependents > 0),
        array_agg(ended.id) FILTER (WHERE ended.status = 'pending')
    INTO v_completed, v_put_back FROM ended;
    IF v_put_back IS NOT NULL THEN
        PERFORM {launch}(v_put_back, v_now);
    END IF;
    RETURN QUERY SELECT 'held', h, NULL::text, NULL::text, NULL::text, NULL::boolean, NULL::text FROM unnest(v_positions) AS h;
    IF v_completed IS NOT NULL THEN
        RETURN QUERY SELECT 'unblocked', NULL::integer, u.job_id::text, u.type_name, NULL::text, u.ready, NULL::text
        FROM {unblock}(v_completed, v_now) AS u;
    END IF;
    IF cardinality(v_next) > 0 THEN
        RETURN QUERY
        WITH edge AS (
            SELECT coalesce(array_agg(e.job_id ORDER BY e.n), '{}') AS jobs, coalesce(array_agg(e.chain_id ORDER BY e.n), '{}') AS chains,
                coalesce(array_agg(e.trace ORDER BY e.n), '{}') AS traces
            FROM unnest(p_edge_jobs::uuid[], p_edge_chains::uuid[], p_edge_traces) WITH ORDINALITY AS e (job_id, chain_id, trace, n)
            WHERE e.job_id = ANY (v_next)
        ), next AS (
            SELECT array_agg(n.id) AS ids, array_agg(n.type_name) AS types, array_agg(j.chain_id) AS chains,
                array_agg(j.chain_type) AS chain_types, array_agg(j.chain_index + 1) AS indexes, array_agg(n.input) AS inputs,
                array_agg(n.priority) AS priorities, array_agg(n.at_time) AS at_times, array_agg(n.after_time) AS after_times,
                array_agg(n.deadline_at) AS deadline_at, array_agg(n.deadline_after) AS deadline_after,
                array_agg(j.dependents) AS dependents, array_agg(n.trace) AS traces, array_agg(n.chain_trace) AS chain_traces
            FROM unnest(
                p_next_positions, p_next_ids::uuid[], p_next_types, p_next_inputs, p_next_priorities, p_next_at, p_next_after,
                p_next_deadline_at, p_next_deadline_after, p_next_traces, p_next_chain_traces
            ) AS n (place, id, type_name, input, priority, at_time, after_time, deadline_at, deadline_after, trace, chain_trace)
            JOIN unnest(v_positions, v_ids) AS h (n, id) ON h.n = n.place
            JOIN {job} AS j ON j.id = h.id
        )
        SELECT 'created', asked.place, made.id::text, NULL::text, made.status, made.ready, NULL::text
        FROM next, edge, {insert_jobs}(
            next.ids, next.types, next.chains, next.chain_types, next.indexes, next.inputs, next.priorities, next.at_times,
            next.after_times, next.deadline_at, next.deadline_after, '{}', next.dependents, next.traces, next.chain_traces, '{}',
            edge.jobs, edge.chains, edge.traces, v_now
        ) AS made
        JOIN unnest(p_next_positions, p_next_ids::uuid[]) AS asked (place, id) ON asked.id = made.id;
    END IF;
END $body$;
