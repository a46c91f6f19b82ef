-- create_jobs.

-- Store jobs whose edges are checked and whose blocking chains are locked; those that found an existing chain are left out.
CREATE FUNCTION {insert_jobs}(
    p_ids uuid[], p_types text[], p_chains uuid[], p_chain_types text[], p_indexes integer[], p_inputs text[],
    p_priorities integer[], p_at timestamptz[], p_after double precision[], p_deadline_at timestamptz[],
    p_deadline_after double precision[], p_keys text[], p_dependents integer[], p_traces text[], p_chain_traces text[],
    p_existing uuid[], p_edge_jobs uuid[], p_edge_chains uuid[], p_edge_traces text[], p_now timestamptz
) RETURNS TABLE (id uuid, status text, ready boolean) LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    v_edges boolean := cardinality(p_edge_jobs) > 0;
BEGIN
    IF v_edges THEN
        INSERT INTO {blocker} (job_id, position, chain_id, trace_context)
        SELECT edge.job_id, row_number() OVER (PARTITION BY edge.job_id ORDER BY edge.n), edge.chain_id, edge.trace
        FROM unnest(p_edge_jobs, p_edge_chains, p_edge_traces) WITH ORDINALITY AS edge (job_id, chain_id, trace, n);
        -- Updated, not only locked: a completer with an older snapshot must fail rather than overlook the new edge.
        UPDATE {job} AS j SET dependents = j.dependents + added.edges
        FROM (
            SELECT last.id, count(*) AS edges
            FROM unnest(p_edge_chains) AS edge (chain_id)
            CROSS JOIN LATERAL (
                SELECT c.id FROM {job} AS c WHERE c.chain_id = edge.chain_id ORDER BY c.chain_index DESC LIMIT 1
            ) AS last
            GROUP BY last.id
        ) AS added
        WHERE j.id = added.id;
    END IF;
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT * FROM unnest(
            p_ids, p_types, p_chains, p_chain_types, p_indexes, p_inputs, p_priorities, p_at, p_after, p_deadline_at,
            p_deadline_after, p_keys, p_dependents, p_traces, p_chain_traces, p_existing
        ) AS n (
            id, type_name, chain_id, chain_type, chain_index, input, priority, at_time, after_time, deadline_at,
            deadline_after, key, dependents, trace, chain_trace, existing
        )
    ), new AS (
        INSERT INTO {job} AS j (
            id, type_name, chain_id, chain_type, chain_index, input, status, resting, priority, created_at, scheduled_at,
            deadline, dedup_key, blocker_count, blockers_left, dependents, trace_context, chain_trace_context
        )
        SELECT
            n.id, n.type_name, n.chain_id, n.chain_type, n.chain_index, n.input::json,
            CASE WHEN coalesce(edges.waiting, 0) > 0 THEN 'blocked' ELSE 'pending' END,
            CASE WHEN coalesce(edges.waiting, 0) > 0 THEN 'blocked' END,
            n.priority, p_now, coalesce(n.at_time, p_now + make_interval(secs => coalesce(n.after_time, 0))),
            coalesce(n.deadline_at, p_now + make_interval(secs => n.deadline_after)), n.key,
            coalesce(edges.number, 0), coalesce(edges.waiting, 0),
            coalesce(n.dependents, 0) + coalesce(within.edges, 0), n.trace, n.chain_trace
        FROM asked AS n
        LEFT JOIN LATERAL (
            SELECT count(*)::integer AS number,
                (count(*) FILTER (WHERE NOT coalesce(last.status = 'completed' AND last.continued_to IS NULL, false)))::integer AS waiting
            FROM unnest(p_edge_jobs, p_edge_chains) AS edge (job_id, chain_id)
            LEFT JOIN LATERAL (
                SELECT c.status, c.continued_to FROM {job} AS c
                WHERE c.chain_id = edge.chain_id ORDER BY c.chain_index DESC LIMIT 1
            ) AS last ON true
            WHERE edge.job_id = n.id
        ) AS edges ON v_edges
        LEFT JOIN LATERAL (
            -- Edges to a chain that this very call begins or continues: this job is the current one now.
            SELECT count(*)::integer AS edges FROM unnest(p_edge_chains) AS edge (chain_id) WHERE edge.chain_id = n.chain_id
        ) AS within ON v_edges
        WHERE n.existing IS NULL
        RETURNING j.id, j.status, j.type_name, j.priority, j.scheduled_at
    ), now_due AS (
        INSERT INTO {ready} (type_name, priority, scheduled_at, id)
        SELECT new.type_name, new.priority, new.scheduled_at, new.id FROM new
        WHERE new.status = 'pending' AND new.scheduled_at <= p_now
    ), due_later AS (
        INSERT INTO {later} (type_name, scheduled_at, id, priority)
        SELECT new.type_name, new.scheduled_at, new.id, new.priority FROM new
        WHERE new.status = 'pending' AND new.scheduled_at > p_now
    )
    SELECT new.id, new.status, new.status = 'pending' AND new.scheduled_at <= p_now FROM new;
END $body$;

-- The chain that holds a deduplication key and matches, or NULL: then the key is taken for the new chain. Without a match the row of the
-- key is locked until the transaction ends, so that a second start waits, and creates only if this one is rolled back.
CREATE FUNCTION {take_key}(
    p_type text, p_key text, p_id uuid, p_any boolean, p_window double precision, p_exclude uuid[], p_now timestamptz,
    p_new uuid[]
) RETURNS uuid LANGUAGE plpgsql AS $body$
DECLARE
    v_chain uuid;
    v_matches boolean;
    v_locked boolean := false;
BEGIN
    LOOP
        IF v_locked THEN
            SELECT k.chain_id INTO v_chain FROM {key} AS k WHERE k.chain_type = p_type AND k.key = p_key FOR UPDATE;
        ELSE
            SELECT k.chain_id INTO v_chain FROM {key} AS k WHERE k.chain_type = p_type AND k.key = p_key;
        END IF;
        IF FOUND THEN
            SELECT v_chain <> ALL (p_exclude) AND CASE
                WHEN p_any THEN p_window IS NULL OR first.created_at > p_now - make_interval(secs => p_window)
                ELSE last.status IN ('blocked', 'pending')
                END
            INTO v_matches
            FROM {job} AS first
            CROSS JOIN LATERAL (
                SELECT j.status FROM {job} AS j WHERE j.chain_id = first.id ORDER BY j.chain_index DESC LIMIT 1
            ) AS last
            WHERE first.id = v_chain;
            IF NOT FOUND THEN
                v_matches := v_chain = ANY (p_new) AND v_chain <> ALL (p_exclude);
            END IF;
            IF v_matches THEN
                RETURN v_chain;
            END IF;
            IF v_locked THEN
                UPDATE {key} AS k SET chain_id = p_id WHERE k.chain_type = p_type AND k.key = p_key;
                RETURN NULL;
            END IF;
        END IF;
        INSERT INTO {key} (chain_type, key, chain_id) VALUES (p_type, p_key, p_id) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN NULL;
        END IF;
        v_locked := true;
    END LOOP;
END $body$;

-- One row for each job. A problem is raised as QUE01 with the details as its message.
CREATE FUNCTION {create_or_raise}(
    p_ids text[], p_types text[], p_chains text[], p_chain_types text[], p_indexes integer[], p_inputs text[],
    p_priorities integer[], p_at timestamptz[], p_after double precision[], p_deadline_at timestamptz[],
    p_deadline_after double precision[], p_traces text[], p_chain_traces text[],
    p_keys text[], p_key_any boolean[], p_key_windows double precision[], p_key_excludes text[],
    p_edge_jobs text[], p_edge_chains text[], p_edge_types text[], p_edge_traces text[], p_check_ids boolean
) RETURNS TABLE (id uuid, status text, ready boolean, existing uuid) LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz := {clock};
    v_ids uuid[] := p_ids::uuid[];
    v_new_ids uuid[] := p_ids::uuid[];
    v_new_types text[] := p_types;
    v_edge_jobs uuid[] := p_edge_jobs::uuid[];
    v_edge_chains uuid[] := p_edge_chains::uuid[];
    v_edge_types text[] := p_edge_types;
    v_edge_traces text[] := p_edge_traces;
    v_existing uuid[] := '{}';
    v_problem jsonb;
    v_item record;
BEGIN
    IF cardinality(p_keys) > 0 THEN
        v_existing := array_fill(NULL::uuid, ARRAY[cardinality(p_ids)]);
        -- By type and key, so that two starts never wait for each other; in the order of the call for one key.
        FOR v_item IN
            SELECT asked.* FROM unnest(v_ids, p_types, p_keys, p_key_any, p_key_windows, p_key_excludes)
                WITH ORDINALITY AS asked (id, type_name, key, any_status, window_seconds, exclude, n)
            WHERE asked.key IS NOT NULL ORDER BY asked.type_name, asked.key, asked.n
        LOOP
            v_existing[v_item.n] := {take_key}(
                v_item.type_name, v_item.key, v_item.id, v_item.any_status, v_item.window_seconds,
                coalesce(string_to_array(v_item.exclude, ','), '{}')::uuid[], v_now, v_ids
            );
        END LOOP;
        SELECT coalesce(array_agg(asked.id ORDER BY asked.n), '{}'), coalesce(array_agg(asked.type_name ORDER BY asked.n), '{}')
        INTO v_new_ids, v_new_types
        FROM unnest(v_ids, p_types, v_existing) WITH ORDINALITY AS asked (id, type_name, existing, n)
        WHERE asked.existing IS NULL;
    END IF;
    IF p_check_ids THEN
        SELECT jsonb_build_object('problem', 'id_exists', 'job_id', twice.id) INTO v_problem
        FROM (
            SELECT asked.id, row_number() OVER (PARTITION BY asked.id ORDER BY asked.n) AS time, asked.n
            FROM unnest(v_new_ids) WITH ORDINALITY AS asked (id, n)
        ) AS twice
        WHERE twice.time > 1 OR EXISTS (SELECT FROM {job} AS j WHERE j.id = twice.id)
        ORDER BY twice.n LIMIT 1;
        IF v_problem IS NOT NULL THEN
            RAISE SQLSTATE 'QUE01' USING MESSAGE = v_problem::text;
        END IF;
    END IF;
    IF cardinality(v_edge_jobs) > 0 THEN
        SELECT coalesce(array_agg(edge.job_id ORDER BY edge.n), '{}'), coalesce(array_agg(edge.chain_id ORDER BY edge.n), '{}'),
            coalesce(array_agg(edge.type_name ORDER BY edge.n), '{}'), coalesce(array_agg(edge.trace ORDER BY edge.n), '{}')
        INTO v_edge_jobs, v_edge_chains, v_edge_types, v_edge_traces
        FROM unnest(v_edge_jobs, v_edge_chains, v_edge_types, v_edge_traces)
            WITH ORDINALITY AS edge (job_id, chain_id, type_name, trace, n)
        WHERE edge.job_id = ANY (v_new_ids);
        v_problem := {check_edges}(v_edge_jobs, v_edge_jobs, v_edge_chains, v_edge_types, v_new_ids, v_new_types);
        IF v_problem IS NOT NULL THEN
            RAISE SQLSTATE 'QUE01' USING MESSAGE = v_problem::text;
        END IF;
    END IF;
    RETURN QUERY
    SELECT made.id, made.status, made.ready, NULL::uuid
    FROM {insert_jobs}(
        v_ids, p_types, p_chains::uuid[], p_chain_types, p_indexes, p_inputs, p_priorities, p_at, p_after, p_deadline_at,
        p_deadline_after, p_keys, '{}', p_traces, p_chain_traces, v_existing, v_edge_jobs, v_edge_chains, v_edge_traces, v_now
    ) AS made;
    RETURN QUERY
    SELECT asked.id, NULL::text, false, asked.existing FROM unnest(v_ids, v_existing) AS asked (id, existing)
    WHERE asked.existing IS NOT NULL;
END $body$;

-- create_jobs: one row for each job, or one row with a problem, and then nothing is written. An error would poison the caller's
-- transaction; a block that catches it costs a sub-transaction, so plain starts do without.
CREATE FUNCTION {create_jobs}(
    p_ids text[], p_types text[], p_chains text[], p_chain_types text[], p_indexes integer[], p_inputs text[],
    p_priorities integer[], p_at timestamptz[], p_after double precision[], p_deadline_at timestamptz[],
    p_deadline_after double precision[], p_traces text[], p_chain_traces text[],
    p_keys text[], p_key_any boolean[], p_key_windows double precision[], p_key_excludes text[],
    p_edge_jobs text[], p_edge_chains text[], p_edge_types text[], p_edge_traces text[], p_check_ids boolean
) RETURNS TABLE (id text, status text, ready boolean, existing text, problem text) LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    v_problem text;
BEGIN
    IF NOT p_check_ids AND cardinality(p_keys) = 0 AND cardinality(p_edge_jobs) = 0 THEN
        RETURN QUERY SELECT made.id::text, made.status, made.ready, made.existing::text, NULL::text FROM {create_or_raise}(
            p_ids, p_types, p_chains, p_chain_types, p_indexes, p_inputs, p_priorities, p_at, p_after, p_deadline_at,
            p_deadline_after, p_traces, p_chain_traces, p_keys, p_key_any, p_key_windows, p_key_excludes,
            p_edge_jobs, p_edge_chains, p_edge_types, p_edge_traces, p_check_ids
        ) AS made;
        RETURN;
    END IF;
    BEGIN
        RETURN QUERY SELECT made.id::text, made.status, made.ready, made.existing::text, NULL::text FROM {create_or_raise}(
            p_ids, p_types, p_chains, p_chain_types, p_indexes, p_inputs, p_priorities, p_at, p_after, p_deadline_at,
            p_deadline_after, p_traces, p_chain_traces, p_keys, p_key_any, p_key_windows, p_key_excludes,
            p_edge_jobs, p_edge_chains, p_edge_types, p_edge_traces, p_check_ids
        ) AS made;
    EXCEPTION
        WHEN SQLSTATE 'QUE01' THEN
            GET STACKED DIAGNOSTICS v_problem = MESSAGE_TEXT;
            RETURN QUERY SELECT NULL::text, NULL::text, NULL::boolean, NULL::text, v_problem;
        WHEN unique_violation THEN
            -- Somebody else has stored one of these ids since we looked.
            SELECT jsonb_build_object('problem', 'id_exists', 'job_id', asked) INTO v_problem
            FROM unnest(p_ids) AS asked WHERE EXISTS (SELECT FROM {job} AS j WHERE j.id = asked::uuid) LIMIT 1;
            IF v_problem IS NULL THEN
                RAISE;
            END IF;
            RETURN QUERY SELECT NULL::text, NULL::text, NULL::boolean, NULL::text, v_problem;
    END;
END $body$;
