-- Storing jobs. Locks: rows of `key` by type and key, then the current jobs of blocking chains by
-- id.

-- Insert the jobs for which `p_store` is true. Their edges were counted by the caller (NULL: no
-- edges).
CREATE OR REPLACE FUNCTION {insert_jobs}(
    p_ids uuid[], p_types text[], p_chains uuid[], p_chain_types text[], p_indexes integer[], p_inputs text[],
    p_priorities integer[], p_at timestamptz[], p_after double precision[], p_deadline_at timestamptz[],
    p_deadline_after double precision[], p_keys text[], p_traces text[], p_chain_traces text[],
    p_store boolean[], p_edges integer[], p_waiting integer[], p_dependents integer[], p_now timestamptz
) RETURNS TABLE (id uuid, status text, ready boolean) LANGUAGE plpgsql AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH new AS (
        INSERT INTO {job} AS j (
            id, type_name, chain_id, chain_type, chain_index, input, status, resting, priority, created_at, scheduled_at,
            deadline, dedup_key, blocker_count, blockers_left, dependents, trace_context, chain_trace_context
        )
        SELECT
            n.id, n.type_name, n.chain_id, n.chain_type, n.chain_index, n.input::json,
            CASE WHEN n.waiting > 0 THEN 'blocked' ELSE 'pending' END, CASE WHEN n.waiting > 0 THEN 'blocked' END,
            n.priority, p_now, coalesce(n.at_time, p_now + make_interval(secs => coalesce(n.after_time, 0))),
            coalesce(n.deadline_at, p_now + make_interval(secs => n.deadline_after)), n.key,
            coalesce(n.edges, 0), coalesce(n.waiting, 0), coalesce(n.dependents, 0), n.trace, n.chain_trace
        FROM unnest(
            p_ids, p_types, p_chains, p_chain_types, p_indexes, p_inputs, p_priorities, p_at, p_after, p_deadline_at,
            p_deadline_after, p_keys, p_traces, p_chain_traces, p_store, p_edges, p_waiting, p_dependents
        ) AS n (
            id, type_name, chain_id, chain_type, chain_index, input, priority, at_time, after_time, deadline_at,
            deadline_after, key, trace, chain_trace, store, edges, waiting, dependents
        )
        WHERE n.store
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

-- Returns the chain that has a deduplication key and matches, or NULL; then the new chain has the
-- key. Without a match the row of `key` (primary key) is locked until the transaction ends: a
-- second start waits, and creates a chain only if this one is rolled back.
CREATE OR REPLACE FUNCTION {take_key}(
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
            SELECT v_chain <> ALL (p_exclude) AND (p_any OR last.status IN ('blocked', 'pending'))
                AND (p_window IS NULL OR first.created_at > p_now - make_interval(secs => p_window))
            INTO v_matches
            FROM {job} AS first
            CROSS JOIN LATERAL (
                SELECT j.status FROM {job} AS j WHERE j.chain_id = first.id ORDER BY j.chain_index DESC LIMIT 1
            ) AS last
            WHERE first.id = v_chain;
            IF NOT FOUND THEN
                -- The same call starts this chain now, so it is inside any window longer than 0.
                v_matches := v_chain = ANY (p_new) AND v_chain <> ALL (p_exclude)
                    AND (p_window IS NULL OR make_interval(secs => p_window) > interval '0');
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

-- Returns one row for each job. A job whose chain was found under its key has its position, because
-- others may have the same id. A problem is raised as QUE01 with the details as its message. Edges
-- name the position of their job in the call, and the position of the job that starts their chain
-- (NULL: no earlier job of the call starts it).
CREATE OR REPLACE FUNCTION {try_create}(
    p_ids text[], p_types text[], p_chains text[], p_chain_types text[], p_indexes integer[], p_inputs text[],
    p_priorities integer[], p_at timestamptz[], p_after double precision[], p_deadline_at timestamptz[],
    p_deadline_after double precision[], p_traces text[], p_chain_traces text[],
    p_keys text[], p_key_any boolean[], p_key_windows double precision[], p_key_excludes text[],
    p_edge_places integer[], p_edge_chains text[], p_edge_types text[], p_edge_within integer[], p_edge_traces text[]
) RETURNS TABLE (id uuid, status text, ready boolean, existing uuid, place integer) LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz := {clock};
    v_ids uuid[] := p_ids::uuid[];
    v_store boolean[] := array_fill(true, ARRAY[cardinality(p_ids)]);
    v_existing uuid[];
    v_edge_jobs uuid[] := '{}';
    v_edge_places integer[] := '{}';
    v_edge_chains uuid[] := '{}';
    v_edge_types text[] := '{}';
    v_edge_within integer[] := '{}';
    v_edge_traces text[] := '{}';
    v_new_types text[] := '{}';
    v_edges integer[];
    v_waiting integer[];
    v_dependents integer[];
    v_problem jsonb;
    v_id_problem jsonb;
    v_bad integer;
    v_item record;
    v_chain uuid;
BEGIN
    IF cardinality(p_keys) > 0 THEN
        v_existing := array_fill(NULL::uuid, ARRAY[cardinality(p_ids)]);
        -- By type and key, so that two starts never wait for each other; then in the order of the
        -- call.
        FOR v_item IN
            SELECT asked.* FROM unnest(v_ids, p_types, p_keys, p_key_any, p_key_windows, p_key_excludes)
                WITH ORDINALITY AS asked (id, type_name, key, any_status, window_seconds, exclude, n)
            WHERE asked.key IS NOT NULL ORDER BY asked.type_name, asked.key, asked.n
        LOOP
            v_chain := {take_key}(
                v_item.type_name, v_item.key, v_item.id, v_item.any_status, v_item.window_seconds,
                coalesce(string_to_array(v_item.exclude, ','), '{}')::uuid[], v_now, v_ids
            );
            IF v_chain IS NOT NULL THEN
                v_existing[v_item.n] := v_chain;
                v_store[v_item.n] := false;
            END IF;
        END LOOP;
    END IF;
    -- The first job with a problem is reported; for one job, its id before its edges.
    SELECT jsonb_build_object('problem', 'id_exists', 'job_id', asked.id), asked.n INTO v_id_problem, v_bad
    FROM (
        SELECT new.id, new.n, row_number() OVER (PARTITION BY new.id ORDER BY new.n) AS time
        FROM unnest(v_ids, v_store) WITH ORDINALITY AS new (id, store, n) WHERE new.store
    ) AS asked
    -- OFFSET 0: each id is looked up by itself, whatever the plan was made for.
    WHERE asked.time > 1 OR EXISTS (SELECT FROM {job} AS j WHERE j.id = asked.id OFFSET 0)
    ORDER BY asked.n LIMIT 1;
    IF cardinality(p_edge_places) > 0 THEN
        FOR v_item IN
            SELECT edge.* FROM unnest(p_edge_places, p_edge_chains::uuid[], p_edge_types, p_edge_within, p_edge_traces)
                WITH ORDINALITY AS edge (place, chain_id, type_name, within, trace, n) ORDER BY edge.n
        LOOP
            CONTINUE WHEN NOT v_store[v_item.place] OR v_item.place >= v_bad;
            -- A chain that was found under its key is not stored under the id that the call has for
            -- it. A later one of the call with the same id may be.
            IF v_item.within IS NOT NULL AND NOT v_store[v_item.within] THEN
                v_item.within := (
                    SELECT min(new.n) FROM unnest(v_ids, v_store, p_indexes) WITH ORDINALITY AS new (id, store, index, n)
                    WHERE new.id = v_item.chain_id AND new.store AND new.index = 0 AND new.n < v_item.place
                );
            END IF;
            v_edge_jobs := v_edge_jobs || v_ids[v_item.place];
            v_edge_places := v_edge_places || v_item.place;
            v_edge_chains := v_edge_chains || v_item.chain_id;
            v_edge_types := v_edge_types || v_item.type_name;
            v_edge_within := v_edge_within || v_item.within;
            v_edge_traces := v_edge_traces || v_item.trace;
            v_new_types := v_new_types || CASE WHEN v_item.within IS NOT NULL THEN p_types[v_item.within] END;
        END LOOP;
        PERFORM {lock_current}(array(
            SELECT DISTINCT edge.chain_id FROM unnest(v_edge_chains, v_edge_within) AS edge (chain_id, within)
            WHERE edge.within IS NULL
        ), '{}');
        v_problem := coalesce(
            {check_edges}(v_edge_jobs, v_edge_jobs, v_edge_chains, v_edge_types, v_new_types), v_id_problem
        );
        IF v_problem IS NOT NULL THEN
            RAISE SQLSTATE 'QUE01' USING MESSAGE = v_problem::text;
        END IF;
        SELECT counted.o_edges, counted.o_waiting, counted.o_dependents INTO v_edges, v_waiting, v_dependents
        FROM {count_edges}(v_edge_places, v_edge_chains, v_edge_within, cardinality(v_ids)) AS counted;
        PERFORM {add_edges}(v_edge_jobs, v_edge_chains, v_edge_within, v_edge_traces);
    ELSIF v_id_problem IS NOT NULL THEN
        RAISE SQLSTATE 'QUE01' USING MESSAGE = v_id_problem::text;
    END IF;
    RETURN QUERY
    SELECT made.id, made.status, made.ready, NULL::uuid, NULL::integer
    FROM {insert_jobs}(
        v_ids, p_types, p_chains::uuid[], p_chain_types, p_indexes, p_inputs, p_priorities, p_at, p_after, p_deadline_at,
        p_deadline_after, p_keys, p_traces, p_chain_traces, v_store, v_edges, v_waiting, v_dependents, v_now
    ) AS made;
    RETURN QUERY
    SELECT asked.id, NULL::text, false, asked.existing, asked.n::integer
    FROM unnest(v_ids, v_existing) WITH ORDINALITY AS asked (id, existing, n) WHERE asked.existing IS NOT NULL;
END $body$;

-- Returns one row for each job, or one row with a problem, and then nothing is written. An error
-- would make the caller's transaction unusable, so it is caught here, which undoes what was done
-- before it.
CREATE OR REPLACE FUNCTION {create_jobs}(
    p_ids text[], p_types text[], p_chains text[], p_chain_types text[], p_indexes integer[], p_inputs text[],
    p_priorities integer[], p_at timestamptz[], p_after double precision[], p_deadline_at timestamptz[],
    p_deadline_after double precision[], p_traces text[], p_chain_traces text[],
    p_keys text[], p_key_any boolean[], p_key_windows double precision[], p_key_excludes text[],
    p_edge_places integer[], p_edge_chains text[], p_edge_types text[], p_edge_within integer[], p_edge_traces text[]
) RETURNS TABLE (id text, status text, ready boolean, existing text, problem text, place integer)
LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_problem text;
BEGIN
    RETURN QUERY SELECT made.id::text, made.status, made.ready, made.existing::text, NULL::text, made.place FROM {try_create}(
        p_ids, p_types, p_chains, p_chain_types, p_indexes, p_inputs, p_priorities, p_at, p_after, p_deadline_at,
        p_deadline_after, p_traces, p_chain_traces, p_keys, p_key_any, p_key_windows, p_key_excludes,
        p_edge_places, p_edge_chains, p_edge_types, p_edge_within, p_edge_traces
    ) AS made;
EXCEPTION
    WHEN SQLSTATE 'QUE01' THEN
        GET STACKED DIAGNOSTICS v_problem = MESSAGE_TEXT;
        RETURN QUERY SELECT NULL::text, NULL::text, NULL::boolean, NULL::text, v_problem, NULL::integer;
    WHEN unique_violation THEN
        -- Another transaction has stored one of these ids since we looked.
        SELECT jsonb_build_object('problem', 'id_exists', 'job_id', asked) INTO v_problem
        FROM unnest(p_ids) AS asked WHERE EXISTS (SELECT FROM {job} AS j WHERE j.id = asked::uuid) LIMIT 1;
        IF v_problem IS NULL THEN
            RAISE;
        END IF;
        RETURN QUERY SELECT NULL::text, NULL::text, NULL::boolean, NULL::text, v_problem, NULL::integer;
END $body$;

-- The common start, made cheap: first jobs of one type and priority, due now, without keys or
-- edges. Returns the problem, if there is one, and then nothing is written. No subtransaction: an
-- id that exists is skipped, and the rows written beside it are deleted again. Locks only what it
-- inserts.
CREATE OR REPLACE FUNCTION {begin_chains}(p_ids uuid[], p_type text, p_priority integer, p_inputs text[]) RETURNS text
LANGUAGE plpgsql {steady} AS $body$
DECLARE
    v_now timestamptz := {clock};
    v_stored uuid[];
    v_problem text;
BEGIN
    LOOP
        WITH new AS (
            INSERT INTO {job} AS j (
                id, type_name, chain_id, chain_type, chain_index, input, status, priority, created_at, scheduled_at
            )
            SELECT n.id, p_type, n.id, p_type, 0, n.input::json, 'pending', p_priority, v_now, v_now
            FROM unnest(p_ids, p_inputs) AS n (id, input)
            ON CONFLICT (id) DO NOTHING
            RETURNING j.id
        )
        SELECT array_agg(new.id) INTO v_stored FROM new;
        EXIT WHEN cardinality(v_stored) = cardinality(p_ids);
        DELETE FROM {job} WHERE id = ANY (v_stored);
        SELECT jsonb_build_object('problem', 'id_exists', 'job_id', asked.id) INTO v_problem
        FROM (
            SELECT new.id, new.n, row_number() OVER (PARTITION BY new.id ORDER BY new.n) AS time
            FROM unnest(p_ids) WITH ORDINALITY AS new (id, n)
        ) AS asked
        -- OFFSET 0: each id is looked up by itself, whatever the plan was made for.
        WHERE asked.time > 1 OR EXISTS (SELECT FROM {job} AS j WHERE j.id = asked.id OFFSET 0)
        ORDER BY asked.n LIMIT 1;
        IF v_problem IS NOT NULL THEN
            RETURN v_problem;
        END IF;
        -- The job with that id was deleted meanwhile: try again.
    END LOOP;
    INSERT INTO {ready} (type_name, priority, scheduled_at, id)
    SELECT p_type, p_priority, v_now, n.id FROM unnest(p_ids) AS n (id);
    RETURN NULL;
END $body$;
