-- The schema as commit bc379eb (schema version 6) left it: tables, and functions without a digest in their names.
-- Made from that commit's own migrations; never changed again.

CREATE TABLE IF NOT EXISTS "public"."queuert_schema_version" (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE "public"."queuert_job" (
    id uuid PRIMARY KEY,
    type_name text NOT NULL,
    chain_id uuid NOT NULL,
    chain_type text NOT NULL,
    chain_index integer NOT NULL,
    input json NOT NULL,
    output json,
    status text NOT NULL,
    resting text,
    priority integer NOT NULL,
    created_at timestamptz NOT NULL,
    scheduled_at timestamptz NOT NULL,
    completed_at timestamptz,
    completed_by text,
    continued_to uuid,
    attempt integer NOT NULL DEFAULT 0,
    last_attempt_at timestamptz,
    last_error json,
    deadline timestamptz,
    dedup_key text,
    blocker_count integer NOT NULL DEFAULT 0,
    blockers_left integer NOT NULL DEFAULT 0,
    dependents integer NOT NULL DEFAULT 0,
    trace_context text,
    chain_trace_context text
) WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
CREATE UNIQUE INDEX "queuert_job_chain" ON "public"."queuert_job" (chain_id, chain_index);
CREATE INDEX "queuert_job_type" ON "public"."queuert_job" (type_name, id);
CREATE INDEX "queuert_job_first" ON "public"."queuert_job" (type_name, id) WHERE chain_index = 0;
CREATE INDEX "queuert_job_resting" ON "public"."queuert_job" (resting, id) WHERE resting IS NOT NULL;
CREATE INDEX "queuert_job_resting_type" ON "public"."queuert_job" (type_name, resting, id) WHERE resting IS NOT NULL;
CREATE INDEX "queuert_job_resting_chain" ON "public"."queuert_job" (chain_type, resting, id) WHERE resting IS NOT NULL;
CREATE TABLE "public"."queuert_ready" (
    type_name text NOT NULL,
    priority integer NOT NULL,
    scheduled_at timestamptz NOT NULL,
    id uuid NOT NULL,
    PRIMARY KEY (type_name, priority, scheduled_at, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE TABLE "public"."queuert_later" (
    type_name text NOT NULL,
    scheduled_at timestamptz NOT NULL,
    id uuid NOT NULL,
    priority integer NOT NULL,
    PRIMARY KEY (type_name, scheduled_at, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
CREATE TABLE "public"."queuert_running" (
    job_id uuid PRIMARY KEY,
    token bigint NOT NULL,
    type_name text NOT NULL,
    worker text NOT NULL,
    leased_until timestamptz NOT NULL,
    started_at timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE TABLE "public"."queuert_blocker" (
    job_id uuid NOT NULL,
    position integer NOT NULL,
    chain_id uuid NOT NULL,
    trace_context text,
    PRIMARY KEY (job_id, position)
);
CREATE INDEX "queuert_blocker_chain" ON "public"."queuert_blocker" (chain_id, job_id);
CREATE TABLE "public"."queuert_key" (
    chain_type text NOT NULL,
    key text NOT NULL,
    chain_id uuid NOT NULL,
    PRIMARY KEY (chain_type, key)
);
CREATE INDEX "queuert_key_chain" ON "public"."queuert_key" (chain_id);
CREATE SEQUENCE "public"."queuert_token" AS bigint CACHE 50;
INSERT INTO "public"."queuert_schema_version" (version) VALUES (1);
CREATE FUNCTION "public"."queuert_lock_in_flight"(p_id uuid) RETURNS boolean LANGUAGE plpgsql AS $body$
DECLARE
    v_job record;
BEGIN
    FOR v_look IN 1..1000 LOOP
        SELECT type_name, priority, scheduled_at, status INTO v_job FROM "public"."queuert_job" WHERE id = p_id;
        IF NOT FOUND OR v_job.status <> 'pending' THEN
            RETURN false;
        END IF;
        PERFORM FROM "public"."queuert_running" WHERE job_id = p_id FOR UPDATE;
        IF FOUND THEN
            RETURN true;
        END IF;
        PERFORM FROM "public"."queuert_ready" WHERE type_name = v_job.type_name AND priority = v_job.priority
            AND scheduled_at = v_job.scheduled_at AND id = p_id FOR UPDATE;
        IF FOUND THEN
            RETURN true;
        END IF;
        PERFORM FROM "public"."queuert_later" WHERE type_name = v_job.type_name AND scheduled_at = v_job.scheduled_at
            AND id = p_id FOR UPDATE;
        IF FOUND THEN
            RETURN true;
        END IF;
        IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
            RAISE serialization_failure USING MESSAGE = 'could not serialize access due to concurrent update';
        END IF;
    END LOOP;
    RAISE data_corrupted USING MESSAGE = format('job %s is pending, but neither ready, nor due later, nor running', p_id);
END $body$;
CREATE FUNCTION "public"."queuert_lock_jobs"(p_ids uuid[], p_chains uuid[] DEFAULT '{}') RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    v_ids uuid[] := array(SELECT DISTINCT asked FROM unnest(p_ids) AS asked ORDER BY asked);
    v_id uuid;
    v_in_flight integer;
    v_pending integer;
BEGIN
    LOOP
        BEGIN
            v_in_flight := 0;
            FOREACH v_id IN ARRAY v_ids LOOP
                IF "public"."queuert_lock_in_flight"(v_id) THEN
                    v_in_flight := v_in_flight + 1;
                END IF;
            END LOOP;
            IF cardinality(p_chains) > 0 THEN
                PERFORM FROM "public"."queuert_key" AS k WHERE k.chain_id = ANY (p_chains) ORDER BY k.chain_type || '', k.key FOR UPDATE;
            END IF;
            PERFORM FROM "public"."queuert_job" WHERE id = ANY (v_ids) ORDER BY status = 'blocked', id FOR UPDATE;
            SELECT count(*) INTO v_pending FROM "public"."queuert_job" WHERE id = ANY (v_ids) AND status = 'pending';
            IF v_pending = v_in_flight THEN
                RETURN;
            END IF;
            RAISE SQLSTATE 'QUE00';
        EXCEPTION WHEN SQLSTATE 'QUE00' THEN
            NULL;
        END;
    END LOOP;
END $body$;
CREATE FUNCTION "public"."queuert_land"(p_ids uuid[]) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    DELETE FROM "public"."queuert_running" WHERE job_id = ANY (p_ids);
    DELETE FROM "public"."queuert_ready" AS r USING "public"."queuert_job" AS j
    WHERE j.id = ANY (p_ids) AND r.type_name = j.type_name AND r.priority = j.priority
        AND r.scheduled_at = j.scheduled_at AND r.id = j.id;
    DELETE FROM "public"."queuert_later" AS l USING "public"."queuert_job" AS j
    WHERE j.id = ANY (p_ids) AND l.type_name = j.type_name AND l.scheduled_at = j.scheduled_at AND l.id = j.id;
END $body$;
CREATE FUNCTION "public"."queuert_launch"(p_ids uuid[], p_now timestamptz) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO "public"."queuert_ready" (type_name, priority, scheduled_at, id)
    SELECT type_name, priority, scheduled_at, id FROM "public"."queuert_job" WHERE id = ANY (p_ids) AND scheduled_at <= p_now;
    INSERT INTO "public"."queuert_later" (type_name, scheduled_at, id, priority)
    SELECT type_name, scheduled_at, id, priority FROM "public"."queuert_job" WHERE id = ANY (p_ids) AND scheduled_at > p_now;
END $body$;
CREATE FUNCTION "public"."queuert_lock_current"(p_chains uuid[], p_also uuid[]) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    v_ids uuid[];
    v_again uuid[];
BEGIN
    LOOP
        BEGIN
            v_ids := array(
                SELECT last.id FROM unnest(p_chains) WITH ORDINALITY AS asked (chain_id, n)
                CROSS JOIN LATERAL (
                    SELECT j.id FROM "public"."queuert_job" AS j WHERE j.chain_id = asked.chain_id ORDER BY j.chain_index DESC LIMIT 1
                ) AS last
                ORDER BY asked.n
            );
            PERFORM FROM "public"."queuert_job" WHERE id = ANY (v_ids || p_also) ORDER BY status = 'blocked', id FOR NO KEY UPDATE;
            v_again := array(
                SELECT last.id FROM unnest(p_chains) WITH ORDINALITY AS asked (chain_id, n)
                CROSS JOIN LATERAL (
                    SELECT j.id FROM "public"."queuert_job" AS j WHERE j.chain_id = asked.chain_id ORDER BY j.chain_index DESC LIMIT 1
                ) AS last
                ORDER BY asked.n
            );
            IF v_again = v_ids THEN
                RETURN;
            END IF;
            RAISE SQLSTATE 'QUE00';
        EXCEPTION WHEN SQLSTATE 'QUE00' THEN
            NULL;
        END;
    END LOOP;
END $body$;
CREATE FUNCTION "public"."queuert_check_edges"(p_jobs uuid[], p_own uuid[], p_chains uuid[], p_types text[], p_new_types text[])
RETURNS jsonb LANGUAGE plpgsql AS $body$
DECLARE
    v_problem jsonb;
BEGIN
    SELECT CASE
        WHEN coalesce(edge.new_type, j.type_name) IS NULL THEN
            jsonb_build_object('problem', 'blocker_not_found', 'job_id', edge.job_id, 'chain_id', edge.chain_id)
        ELSE
            jsonb_build_object('problem', 'blocker_type', 'chain_id', edge.chain_id, 'expected', edge.type_name,
                'actual', coalesce(edge.new_type, j.type_name))
        END
    INTO v_problem
    FROM unnest(p_jobs, p_own, p_chains, p_types, p_new_types) WITH ORDINALITY
        AS edge (job_id, own, chain_id, type_name, new_type, n)
    LEFT JOIN "public"."queuert_job" AS j ON j.id = edge.chain_id AND j.chain_index <= 0 AND edge.chain_id <> edge.own
    WHERE coalesce(edge.new_type, j.type_name) IS DISTINCT FROM edge.type_name
    ORDER BY edge.n
    LIMIT 1;
    RETURN v_problem;
END $body$;
CREATE FUNCTION "public"."queuert_count_edges"(
    p_places integer[], p_chains uuid[], p_within integer[], p_number integer,
    OUT o_edges integer[], OUT o_waiting integer[], OUT o_dependents integer[]
) LANGUAGE plpgsql AS $body$
DECLARE
    v_job record;
    v_place integer;
BEGIN
    o_edges := array_fill(0, ARRAY[p_number]);
    o_waiting := o_edges;
    o_dependents := o_edges;
    FOR v_job IN
        SELECT edge.place, count(*)::integer AS edges,
            (count(*) FILTER (WHERE edge.within IS NOT NULL OR last.status IS DISTINCT FROM 'completed'))::integer AS waiting
        FROM unnest(p_places, p_chains, p_within) AS edge (place, chain_id, within)
        LEFT JOIN LATERAL (
            SELECT j.status FROM "public"."queuert_job" AS j WHERE j.chain_id = edge.chain_id ORDER BY j.chain_index DESC LIMIT 1
        ) AS last ON true
        GROUP BY edge.place
    LOOP
        o_edges[v_job.place] := v_job.edges;
        o_waiting[v_job.place] := v_job.waiting;
    END LOOP;
    FOREACH v_place IN ARRAY p_within LOOP
        IF v_place IS NOT NULL THEN
            o_dependents[v_place] := o_dependents[v_place] + 1;
        END IF;
    END LOOP;
END $body$;
CREATE FUNCTION "public"."queuert_add_edges"(p_jobs uuid[], p_chains uuid[], p_within integer[], p_traces text[])
RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO "public"."queuert_blocker" (job_id, position, chain_id, trace_context)
    SELECT edge.job_id, row_number() OVER (PARTITION BY edge.job_id ORDER BY edge.n), edge.chain_id, edge.trace
    FROM unnest(p_jobs, p_chains, p_traces) WITH ORDINALITY AS edge (job_id, chain_id, trace, n);
    UPDATE "public"."queuert_job" AS j SET dependents = j.dependents + added.edges
    FROM (
        SELECT last.id, count(*) AS edges
        FROM unnest(p_chains, p_within) AS edge (chain_id, within)
        CROSS JOIN LATERAL (
            SELECT c.id FROM "public"."queuert_job" AS c WHERE c.chain_id = edge.chain_id ORDER BY c.chain_index DESC LIMIT 1
        ) AS last
        WHERE edge.within IS NULL
        GROUP BY last.id
    ) AS added
    WHERE j.id = added.id;
END $body$;
CREATE FUNCTION "public"."queuert_unblock"(p_chains uuid[], p_now timestamptz)
RETURNS TABLE (job_id uuid, type_name text, ready boolean) LANGUAGE plpgsql AS $body$
DECLARE
    v_jobs uuid[];
    v_edges integer[];
    v_freed uuid[];
BEGIN
    SELECT array_agg(waiting.id ORDER BY waiting.id), array_agg(waiting.edges ORDER BY waiting.id)
    INTO v_jobs, v_edges
    FROM (
        SELECT b.job_id AS id, count(*)::integer AS edges FROM "public"."queuert_blocker" AS b
        WHERE b.chain_id = ANY (p_chains) GROUP BY b.job_id
    ) AS waiting;
    IF v_jobs IS NULL THEN
        RETURN;
    END IF;
    PERFORM FROM "public"."queuert_job" AS j WHERE j.id = ANY (v_jobs) AND j.status = 'blocked' ORDER BY j.id FOR NO KEY UPDATE;
    WITH counted AS (
        UPDATE "public"."queuert_job" AS j SET
            blockers_left = j.blockers_left - waiting.edges,
            status = CASE WHEN j.blockers_left <= waiting.edges THEN 'pending' ELSE 'blocked' END,
            resting = CASE WHEN j.blockers_left <= waiting.edges THEN NULL ELSE 'blocked' END
        FROM unnest(v_jobs, v_edges) AS waiting (id, edges)
        WHERE j.id = waiting.id AND j.status = 'blocked'
        RETURNING j.id, j.status
    )
    SELECT array_agg(id) INTO v_freed FROM counted WHERE status = 'pending';
    IF v_freed IS NULL THEN
        RETURN;
    END IF;
    PERFORM "public"."queuert_launch"(v_freed, p_now);
    RETURN QUERY SELECT j.id, j.type_name, j.scheduled_at <= p_now FROM "public"."queuert_job" AS j WHERE j.id = ANY (v_freed) ORDER BY j.id;
END $body$;
CREATE FUNCTION "public"."queuert_blockers_of"(p_job uuid)
RETURNS TABLE (place integer, chain_id text, chain_type text, status text, output text, trace_context text)
LANGUAGE sql STABLE AS $body$
    SELECT b.position, b.chain_id::text, j.chain_type, CASE WHEN r.job_id IS NULL THEN j.status ELSE 'running' END,
        j.output::text, b.trace_context
    FROM "public"."queuert_blocker" AS b
    CROSS JOIN LATERAL (
        SELECT c.id, c.chain_type, c.status, c.output FROM "public"."queuert_job" AS c
        WHERE c.chain_id = b.chain_id ORDER BY c.chain_index DESC LIMIT 1
    ) AS j
    LEFT JOIN "public"."queuert_running" AS r ON r.job_id = j.id
    WHERE b.job_id = p_job ORDER BY b.position
$body$;
CREATE FUNCTION "public"."queuert_read_jobs"(p_ids text[]) RETURNS TABLE (id text, type_name text, chain_id text, chain_type text, chain_index integer, input text, output text, status text, priority integer, created_at timestamptz, scheduled_at timestamptz, completed_at timestamptz, completed_by text, continued_to text, attempt integer, last_attempt_at timestamptz, last_error text, leased_by text, leased_until timestamptz, token bigint, deadline timestamptz, dedup_key text, blockers_left integer, trace_context text, chain_trace_context text) LANGUAGE plpgsql SET plan_cache_mode TO force_generic_plan SET enable_seqscan TO off SET enable_bitmapscan TO off SET enable_hashjoin TO off SET enable_mergejoin TO off SET jit TO off AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT j.id::text, j.type_name, j.chain_id::text, j.chain_type, j.chain_index, j.input::text, j.output::text, CASE WHEN r.job_id IS NULL THEN j.status ELSE 'running' END, j.priority, j.created_at, j.scheduled_at, j.completed_at, j.completed_by, j.continued_to::text, j.attempt + (r.job_id IS NOT NULL)::integer, coalesce(r.started_at, j.last_attempt_at), j.last_error::text, r.worker, r.leased_until, r.token, j.deadline, j.dedup_key, j.blockers_left, j.trace_context, j.chain_trace_context FROM unnest(p_ids::uuid[]) WITH ORDINALITY AS asked (job_id, n)
    JOIN "public"."queuert_job" AS j ON j.id = asked.job_id LEFT JOIN "public"."queuert_running" AS r ON r.job_id = j.id
    ORDER BY asked.n;
END $body$;
CREATE FUNCTION "public"."queuert_read_chains"(p_ids text[]) RETURNS TABLE (first_id text, first_type_name text, first_chain_id text, first_chain_type text, first_chain_index integer, first_input text, first_output text, first_status text, first_priority integer, first_created_at timestamptz, first_scheduled_at timestamptz, first_completed_at timestamptz, first_completed_by text, first_continued_to text, first_attempt integer, first_last_attempt_at timestamptz, first_last_error text, first_leased_by text, first_leased_until timestamptz, first_token bigint, first_deadline timestamptz, first_dedup_key text, first_blockers_left integer, first_trace_context text, first_chain_trace_context text, current_id text, current_type_name text, current_chain_id text, current_chain_type text, current_chain_index integer, current_input text, current_output text, current_status text, current_priority integer, current_created_at timestamptz, current_scheduled_at timestamptz, current_completed_at timestamptz, current_completed_by text, current_continued_to text, current_attempt integer, current_last_attempt_at timestamptz, current_last_error text, current_leased_by text, current_leased_until timestamptz, current_token bigint, current_deadline timestamptz, current_dedup_key text, current_blockers_left integer, current_trace_context text, current_chain_trace_context text) LANGUAGE plpgsql SET plan_cache_mode TO force_generic_plan SET enable_seqscan TO off SET enable_bitmapscan TO off SET enable_hashjoin TO off SET enable_mergejoin TO off SET jit TO off AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT first.id::text, first.type_name, first.chain_id::text, first.chain_type, first.chain_index, first.input::text, first.output::text, CASE WHEN first_run.job_id IS NULL THEN first.status ELSE 'running' END, first.priority, first.created_at, first.scheduled_at, first.completed_at, first.completed_by, first.continued_to::text, first.attempt + (first_run.job_id IS NOT NULL)::integer, coalesce(first_run.started_at, first.last_attempt_at), first.last_error::text, first_run.worker, first_run.leased_until, first_run.token, first.deadline, first.dedup_key, first.blockers_left, first.trace_context, first.chain_trace_context, current.id::text, current.type_name, current.chain_id::text, current.chain_type, current.chain_index, current.input::text, current.output::text, CASE WHEN current_run.job_id IS NULL THEN current.status ELSE 'running' END, current.priority, current.created_at, current.scheduled_at, current.completed_at, current.completed_by, current.continued_to::text, current.attempt + (current_run.job_id IS NOT NULL)::integer, coalesce(current_run.started_at, current.last_attempt_at), current.last_error::text, current_run.worker, current_run.leased_until, current_run.token, current.deadline, current.dedup_key, current.blockers_left, current.trace_context, current.chain_trace_context FROM unnest(p_ids::uuid[]) AS asked_id JOIN "public"."queuert_job" AS first ON first.id = asked_id AND first.chain_index <= 0 LEFT JOIN "public"."queuert_running" AS first_run ON first_run.job_id = first.id CROSS JOIN LATERAL (SELECT last.* FROM "public"."queuert_job" AS last WHERE last.chain_id = first.id ORDER BY last.chain_index DESC LIMIT 1) AS current LEFT JOIN "public"."queuert_running" AS current_run ON current_run.job_id = current.id;
END $body$;
CREATE FUNCTION "public"."queuert_next_available_in"(p_types text[]) RETURNS double precision LANGUAGE plpgsql SET plan_cache_mode TO force_generic_plan SET enable_seqscan TO off SET enable_bitmapscan TO off SET enable_hashjoin TO off SET enable_mergejoin TO off SET jit TO off AS $body$
BEGIN
    RETURN (
        SELECT min(greatest(0, extract(epoch FROM due.scheduled_at - clock_timestamp())))::double precision
        FROM unnest(p_types) AS asked (type_name)
        CROSS JOIN LATERAL (
            (SELECT r.scheduled_at FROM "public"."queuert_ready" AS r WHERE r.type_name = asked.type_name
                ORDER BY r.priority, r.scheduled_at, r.id LIMIT 1)
            UNION ALL
            (SELECT l.scheduled_at FROM "public"."queuert_later" AS l WHERE l.type_name = asked.type_name ORDER BY l.scheduled_at, l.id LIMIT 1)
        ) AS due
    );
END $body$;
INSERT INTO "public"."queuert_schema_version" (version) VALUES (2);
CREATE FUNCTION "public"."queuert_insert_jobs"(
    p_ids uuid[], p_types text[], p_chains uuid[], p_chain_types text[], p_indexes integer[], p_inputs text[],
    p_priorities integer[], p_at timestamptz[], p_after double precision[], p_deadline_at timestamptz[],
    p_deadline_after double precision[], p_keys text[], p_traces text[], p_chain_traces text[],
    p_store boolean[], p_edges integer[], p_waiting integer[], p_dependents integer[], p_now timestamptz
) RETURNS TABLE (id uuid, status text, ready boolean) LANGUAGE plpgsql AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH new AS (
        INSERT INTO "public"."queuert_job" AS j (
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
        INSERT INTO "public"."queuert_ready" (type_name, priority, scheduled_at, id)
        SELECT new.type_name, new.priority, new.scheduled_at, new.id FROM new
        WHERE new.status = 'pending' AND new.scheduled_at <= p_now
    ), due_later AS (
        INSERT INTO "public"."queuert_later" (type_name, scheduled_at, id, priority)
        SELECT new.type_name, new.scheduled_at, new.id, new.priority FROM new
        WHERE new.status = 'pending' AND new.scheduled_at > p_now
    )
    SELECT new.id, new.status, new.status = 'pending' AND new.scheduled_at <= p_now FROM new;
END $body$;
CREATE FUNCTION "public"."queuert_take_key"(
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
            SELECT k.chain_id INTO v_chain FROM "public"."queuert_key" AS k WHERE k.chain_type = p_type AND k.key = p_key FOR UPDATE;
        ELSE
            SELECT k.chain_id INTO v_chain FROM "public"."queuert_key" AS k WHERE k.chain_type = p_type AND k.key = p_key;
        END IF;
        IF FOUND THEN
            SELECT v_chain <> ALL (p_exclude) AND CASE
                WHEN p_any THEN p_window IS NULL OR first.created_at > p_now - make_interval(secs => p_window)
                ELSE last.status IN ('blocked', 'pending')
                END
            INTO v_matches
            FROM "public"."queuert_job" AS first
            CROSS JOIN LATERAL (
                SELECT j.status FROM "public"."queuert_job" AS j WHERE j.chain_id = first.id ORDER BY j.chain_index DESC LIMIT 1
            ) AS last
            WHERE first.id = v_chain;
            IF NOT FOUND THEN
                v_matches := v_chain = ANY (p_new) AND v_chain <> ALL (p_exclude)
                    AND (NOT p_any OR p_window IS NULL OR make_interval(secs => p_window) > interval '0');
            END IF;
            IF v_matches THEN
                RETURN v_chain;
            END IF;
            IF v_locked THEN
                UPDATE "public"."queuert_key" AS k SET chain_id = p_id WHERE k.chain_type = p_type AND k.key = p_key;
                RETURN NULL;
            END IF;
        END IF;
        INSERT INTO "public"."queuert_key" (chain_type, key, chain_id) VALUES (p_type, p_key, p_id) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN NULL;
        END IF;
        v_locked := true;
    END LOOP;
END $body$;
CREATE FUNCTION "public"."queuert_create_or_raise"(
    p_ids text[], p_types text[], p_chains text[], p_chain_types text[], p_indexes integer[], p_inputs text[],
    p_priorities integer[], p_at timestamptz[], p_after double precision[], p_deadline_at timestamptz[],
    p_deadline_after double precision[], p_traces text[], p_chain_traces text[],
    p_keys text[], p_key_any boolean[], p_key_windows double precision[], p_key_excludes text[],
    p_edge_places integer[], p_edge_chains text[], p_edge_types text[], p_edge_within integer[], p_edge_traces text[]
) RETURNS TABLE (id uuid, status text, ready boolean, existing uuid, place integer) LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
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
        FOR v_item IN
            SELECT asked.* FROM unnest(v_ids, p_types, p_keys, p_key_any, p_key_windows, p_key_excludes)
                WITH ORDINALITY AS asked (id, type_name, key, any_status, window_seconds, exclude, n)
            WHERE asked.key IS NOT NULL ORDER BY asked.type_name, asked.key, asked.n
        LOOP
            v_chain := "public"."queuert_take_key"(
                v_item.type_name, v_item.key, v_item.id, v_item.any_status, v_item.window_seconds,
                coalesce(string_to_array(v_item.exclude, ','), '{}')::uuid[], v_now, v_ids
            );
            IF v_chain IS NOT NULL THEN
                v_existing[v_item.n] := v_chain;
                v_store[v_item.n] := false;
            END IF;
        END LOOP;
    END IF;
    SELECT jsonb_build_object('problem', 'id_exists', 'job_id', asked.id), asked.n INTO v_id_problem, v_bad
    FROM (
        SELECT new.id, new.n, row_number() OVER (PARTITION BY new.id ORDER BY new.n) AS time
        FROM unnest(v_ids, v_store) WITH ORDINALITY AS new (id, store, n) WHERE new.store
    ) AS asked
    WHERE asked.time > 1 OR EXISTS (SELECT FROM "public"."queuert_job" AS j WHERE j.id = asked.id OFFSET 0)
    ORDER BY asked.n LIMIT 1;
    IF cardinality(p_edge_places) > 0 THEN
        FOR v_item IN
            SELECT edge.* FROM unnest(p_edge_places, p_edge_chains::uuid[], p_edge_types, p_edge_within, p_edge_traces)
                WITH ORDINALITY AS edge (place, chain_id, type_name, within, trace, n) ORDER BY edge.n
        LOOP
            CONTINUE WHEN NOT v_store[v_item.place] OR v_item.place >= v_bad;
            IF v_item.within IS NOT NULL AND NOT v_store[v_item.within] THEN
                v_item.within := NULL;
            END IF;
            v_edge_jobs := v_edge_jobs || v_ids[v_item.place];
            v_edge_places := v_edge_places || v_item.place;
            v_edge_chains := v_edge_chains || v_item.chain_id;
            v_edge_types := v_edge_types || v_item.type_name;
            v_edge_within := v_edge_within || v_item.within;
            v_edge_traces := v_edge_traces || v_item.trace;
            v_new_types := v_new_types || CASE WHEN v_item.within IS NOT NULL THEN p_types[v_item.within] END;
        END LOOP;
        PERFORM "public"."queuert_lock_current"(array(
            SELECT DISTINCT edge.chain_id FROM unnest(v_edge_chains, v_edge_within) AS edge (chain_id, within)
            WHERE edge.within IS NULL
        ), '{}');
        v_problem := coalesce(
            "public"."queuert_check_edges"(v_edge_jobs, v_edge_jobs, v_edge_chains, v_edge_types, v_new_types), v_id_problem
        );
        IF v_problem IS NOT NULL THEN
            RAISE SQLSTATE 'QUE01' USING MESSAGE = v_problem::text;
        END IF;
        SELECT counted.o_edges, counted.o_waiting, counted.o_dependents INTO v_edges, v_waiting, v_dependents
        FROM "public"."queuert_count_edges"(v_edge_places, v_edge_chains, v_edge_within, cardinality(v_ids)) AS counted;
        PERFORM "public"."queuert_add_edges"(v_edge_jobs, v_edge_chains, v_edge_within, v_edge_traces);
    ELSIF v_id_problem IS NOT NULL THEN
        RAISE SQLSTATE 'QUE01' USING MESSAGE = v_id_problem::text;
    END IF;
    RETURN QUERY
    SELECT made.id, made.status, made.ready, NULL::uuid, NULL::integer
    FROM "public"."queuert_insert_jobs"(
        v_ids, p_types, p_chains::uuid[], p_chain_types, p_indexes, p_inputs, p_priorities, p_at, p_after, p_deadline_at,
        p_deadline_after, p_keys, p_traces, p_chain_traces, v_store, v_edges, v_waiting, v_dependents, v_now
    ) AS made;
    RETURN QUERY
    SELECT asked.id, NULL::text, false, asked.existing, asked.n::integer
    FROM unnest(v_ids, v_existing) WITH ORDINALITY AS asked (id, existing, n) WHERE asked.existing IS NOT NULL;
END $body$;
CREATE FUNCTION "public"."queuert_create_jobs"(
    p_ids text[], p_types text[], p_chains text[], p_chain_types text[], p_indexes integer[], p_inputs text[],
    p_priorities integer[], p_at timestamptz[], p_after double precision[], p_deadline_at timestamptz[],
    p_deadline_after double precision[], p_traces text[], p_chain_traces text[],
    p_keys text[], p_key_any boolean[], p_key_windows double precision[], p_key_excludes text[],
    p_edge_places integer[], p_edge_chains text[], p_edge_types text[], p_edge_within integer[], p_edge_traces text[]
) RETURNS TABLE (id text, status text, ready boolean, existing text, problem text, place integer)
LANGUAGE plpgsql SET plan_cache_mode TO force_generic_plan SET enable_seqscan TO off SET enable_bitmapscan TO off SET enable_hashjoin TO off SET enable_mergejoin TO off SET jit TO off AS $body$
#variable_conflict use_column
DECLARE
    v_problem text;
BEGIN
    RETURN QUERY SELECT made.id::text, made.status, made.ready, made.existing::text, NULL::text, made.place FROM "public"."queuert_create_or_raise"(
        p_ids, p_types, p_chains, p_chain_types, p_indexes, p_inputs, p_priorities, p_at, p_after, p_deadline_at,
        p_deadline_after, p_traces, p_chain_traces, p_keys, p_key_any, p_key_windows, p_key_excludes,
        p_edge_places, p_edge_chains, p_edge_types, p_edge_within, p_edge_traces
    ) AS made;
EXCEPTION
    WHEN SQLSTATE 'QUE01' THEN
        GET STACKED DIAGNOSTICS v_problem = MESSAGE_TEXT;
        RETURN QUERY SELECT NULL::text, NULL::text, NULL::boolean, NULL::text, v_problem, NULL::integer;
    WHEN unique_violation THEN
        SELECT jsonb_build_object('problem', 'id_exists', 'job_id', asked) INTO v_problem
        FROM unnest(p_ids) AS asked WHERE EXISTS (SELECT FROM "public"."queuert_job" AS j WHERE j.id = asked::uuid) LIMIT 1;
        IF v_problem IS NULL THEN
            RAISE;
        END IF;
        RETURN QUERY SELECT NULL::text, NULL::text, NULL::boolean, NULL::text, v_problem, NULL::integer;
END $body$;
CREATE FUNCTION "public"."queuert_begin_chains"(p_ids uuid[], p_type text, p_priority integer, p_inputs text[]) RETURNS text
LANGUAGE plpgsql SET plan_cache_mode TO force_generic_plan SET enable_seqscan TO off SET enable_bitmapscan TO off SET enable_hashjoin TO off SET enable_mergejoin TO off SET jit TO off AS $body$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_stored uuid[];
    v_problem text;
BEGIN
    LOOP
        WITH new AS (
            INSERT INTO "public"."queuert_job" AS j (
                id, type_name, chain_id, chain_type, chain_index, input, status, priority, created_at, scheduled_at
            )
            SELECT n.id, p_type, n.id, p_type, 0, n.input::json, 'pending', p_priority, v_now, v_now
            FROM unnest(p_ids, p_inputs) AS n (id, input)
            ON CONFLICT (id) DO NOTHING
            RETURNING j.id
        )
        SELECT array_agg(new.id) INTO v_stored FROM new;
        EXIT WHEN cardinality(v_stored) = cardinality(p_ids);
        DELETE FROM "public"."queuert_job" WHERE id = ANY (v_stored);
        SELECT jsonb_build_object('problem', 'id_exists', 'job_id', asked.id) INTO v_problem
        FROM (
            SELECT new.id, new.n, row_number() OVER (PARTITION BY new.id ORDER BY new.n) AS time
            FROM unnest(p_ids) WITH ORDINALITY AS new (id, n)
        ) AS asked
        WHERE asked.time > 1 OR EXISTS (SELECT FROM "public"."queuert_job" AS j WHERE j.id = asked.id OFFSET 0)
        ORDER BY asked.n LIMIT 1;
        IF v_problem IS NOT NULL THEN
            RETURN v_problem;
        END IF;
    END LOOP;
    INSERT INTO "public"."queuert_ready" (type_name, priority, scheduled_at, id) SELECT p_type, p_priority, v_now, n.id FROM unnest(p_ids) AS n (id);
    RETURN NULL;
END $body$;
INSERT INTO "public"."queuert_schema_version" (version) VALUES (3);
CREATE FUNCTION "public"."queuert_promote"(p_types text[], p_since timestamptz[], p_limit bigint, p_now timestamptz) RETURNS bigint LANGUAGE plpgsql AS $body$
DECLARE
    v_moved bigint;
BEGIN
    WITH due AS (
        DELETE FROM "public"."queuert_later" WHERE ctid = ANY (ARRAY(
            SELECT l.ctid FROM unnest(p_types, p_since) AS asked (type_name, since)
            CROSS JOIN LATERAL (
                SELECT e.ctid FROM "public"."queuert_later" AS e
                WHERE e.type_name = asked.type_name AND e.scheduled_at > coalesce(asked.since, '-infinity') AND e.scheduled_at <= p_now
                ORDER BY e.scheduled_at, e.id LIMIT p_limit FOR UPDATE SKIP LOCKED
            ) AS l
        ))
        RETURNING type_name, priority, scheduled_at, id
    )
    INSERT INTO "public"."queuert_ready" (type_name, priority, scheduled_at, id) SELECT type_name, priority, scheduled_at, id FROM due;
    GET DIAGNOSTICS v_moved = ROW_COUNT;
    RETURN v_moved;
END $body$;
CREATE FUNCTION "public"."queuert_change_room"(p_room integer[], p_by integer, p_member_queues integer[], p_member_types text[], p_type text)
RETURNS integer[] LANGUAGE plpgsql IMMUTABLE AS $body$
BEGIN
    FOR v_member IN 1..cardinality(p_member_types) LOOP
        IF p_member_types[v_member] = p_type THEN
            p_room[p_member_queues[v_member]] := p_room[p_member_queues[v_member]] + p_by;
        END IF;
    END LOOP;
    RETURN p_room;
END $body$;
CREATE FUNCTION "public"."queuert_marks"(
    p_types text[], p_priorities integer[], p_times timestamptz[], p_ids uuid[], p_since timestamptz[], p_until timestamptz[],
    p_moved_all boolean, p_now timestamptz
) RETURNS text LANGUAGE plpgsql AS $body$
DECLARE
    v_since timestamptz := CASE WHEN p_moved_all THEN p_now ELSE '-infinity' END;
    v_until timestamptz := p_now + least(10 * (clock_timestamp() - p_now), interval '10 seconds');
BEGIN
    RETURN (
        SELECT json_object_agg(m.name, json_build_array(
            mark.priority, mark.time, mark.id, coalesce(m.since, v_since), coalesce(m.until, v_until)
        ))
        FROM unnest(p_types, p_priorities, p_times, p_ids, p_since, p_until) AS m (name, priority, time, id, since, until)
        CROSS JOIN LATERAL (
            SELECT m.priority, m.time, m.id::text WHERE m.time > '-infinity'
            UNION ALL
            (SELECT e.priority, e.scheduled_at, left(e.id::text, 24) || '000000000000' FROM "public"."queuert_ready" AS e
                WHERE e.type_name = m.name ORDER BY e.priority, e.scheduled_at, e.id LIMIT 1)
            UNION ALL
            SELECT 2147483647, 'infinity', 'ffffffff-ffff-ffff-ffff-ffffffffffff'
            LIMIT 1
        ) AS mark (priority, time, id)
    );
END $body$;
CREATE FUNCTION "public"."queuert_claim"(
    p_worker text, p_limit integer, p_types text[], p_queues integer[], p_limits integer[], p_leases double precision[],
    p_queue_names text[], p_queue_priorities integer[], p_queue_caps integer[], p_member_queues integer[],
    p_member_types text[], p_cluster_cap integer, p_marks text
) RETURNS TABLE (
    id text, type_name text, chain_id text, chain_type text, chain_index integer, input text, priority integer,
    created_at double precision, scheduled_at double precision, attempt integer, token bigint, last_error text, deadline timestamptz,
    dedup_key text, blockers_left integer, trace_context text, chain_trace_context text, expired boolean, blockers text,
    more boolean, next_in double precision, claimed_at timestamptz
) LANGUAGE plpgsql SET plan_cache_mode TO force_generic_plan SET enable_seqscan TO off SET enable_bitmapscan TO off SET enable_hashjoin TO off SET enable_mergejoin TO off SET jit TO off AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_capped boolean := EXISTS (SELECT FROM unnest(p_queue_caps) AS cap WHERE cap IS NOT NULL);
    v_lock integer;
    v_room integer[];
    v_total bigint := p_limit;
    v_wanted bigint;
    v_more boolean := false;
    v_next timestamptz;
    v_number integer := cardinality(p_types);
    v_left integer[] := p_limits;
    v_mark_priority integer[] := array_fill(-2147483648, ARRAY[v_number]);
    v_mark_time timestamptz[] := array_fill('-infinity'::timestamptz, ARRAY[v_number]);
    v_mark_id uuid[] := array_fill('00000000-0000-0000-0000-000000000000'::uuid, ARRAY[v_number]);
    v_since timestamptz[] := array_fill(NULL::timestamptz, ARRAY[v_number]);
    v_until timestamptz[] := v_since;
    v_given json := p_marks;
    v_mark json;
    v_marked boolean := false;
    v_moved_all boolean;
    v_pages bigint;
    v_window bigint;
    v_first boolean := true;
    v_places tid[];
    v_ids uuid[];
    v_kinds integer[];
    v_priorities integer[];
    v_times timestamptz[];
    v_chosen integer[];
    v_chosen_places tid[];
    v_chosen_ids uuid[];
    v_free integer[];
    v_type integer;
    v_row integer;
    v_count integer;
    v_in_turn boolean := false;
    v_missed boolean;
    v_taken tid[] := '{}';
    v_found uuid[] := '{}';
    v_types integer[] := '{}';
    v_tokens bigint[];
BEGIN
    FOR v_lock IN
        SELECT DISTINCT hashtext(named.name) FROM (
            SELECT 'public/queuert_/cluster' AS name WHERE p_cluster_cap IS NOT NULL
            UNION ALL
            SELECT 'public/queuert_/queue.' || q.name FROM unnest(p_queue_names, p_queue_caps) AS q (name, cap) WHERE q.cap IS NOT NULL
        ) AS named ORDER BY 1
    LOOP
        PERFORM pg_advisory_xact_lock(1903519093, v_lock);
    END LOOP;
    v_now := clock_timestamp();
    IF p_cluster_cap IS NOT NULL THEN
        SELECT greatest(0, p_cluster_cap - count(*)) INTO v_total FROM "public"."queuert_running";
    END IF;
    IF v_capped THEN
        SELECT array_agg(
            CASE WHEN q.cap IS NOT NULL THEN greatest(0, q.cap - (
                SELECT count(*) FROM "public"."queuert_running" AS r
                WHERE r.type_name IN (
                    SELECT m.type_name FROM unnest(p_member_queues, p_member_types) AS m (queue, type_name) WHERE m.queue = q.n
                )
            ))::integer END ORDER BY q.n
        ) INTO v_room FROM unnest(p_queue_caps) WITH ORDINALITY AS q (cap, n);
    END IF;
    v_wanted := least(v_total, p_limit);
    IF v_given IS NOT NULL THEN
        FOR v_type IN 1..v_number LOOP
            v_mark := v_given -> p_types[v_type];
            IF (v_mark ->> 4)::timestamptz > v_now THEN
                v_marked := true;
                v_mark_priority[v_type] := v_mark ->> 0;
                v_mark_time[v_type] := v_mark ->> 1;
                v_mark_id[v_type] := v_mark ->> 2;
                v_since[v_type] := v_mark ->> 3;
                v_until[v_type] := v_mark ->> 4;
            END IF;
        END LOOP;
    END IF;
    v_moved_all := "public"."queuert_promote"(p_types, v_since, greatest(1000, p_limit), v_now) < greatest(1000, p_limit);
    v_pages := pg_stat_get_xact_blocks_fetched('"public"."queuert_ready_pkey"'::regclass);
    IF NOT v_capped AND v_number = 1 AND p_limits[1] >= p_limit THEN
        SELECT coalesce(array_agg(head.place), '{}'), coalesce(array_agg(head.id), '{}'), coalesce(array_agg(1), '{}'),
            array_agg(head.priority), array_agg(head.scheduled_at)
        INTO v_taken, v_found, v_types, v_priorities, v_times
        FROM (
            SELECT e.ctid AS place, e.priority, e.scheduled_at, e.id FROM "public"."queuert_ready" AS e WHERE e.type_name = p_types[1]
                AND (e.priority, e.scheduled_at, e.id) > (v_mark_priority[1], v_mark_time[1], v_mark_id[1])
            ORDER BY e.priority, e.scheduled_at, e.id LIMIT v_wanted FOR UPDATE SKIP LOCKED
        ) AS head;
        v_row := cardinality(v_found);
        IF v_row > 0 THEN
            v_left[1] := v_left[1] - v_row;
            v_mark_priority[1] := v_priorities[v_row];
            v_mark_time[1] := v_times[v_row];
            v_mark_id[1] := v_found[v_row];
        END IF;
    ELSIF NOT v_capped AND v_wanted <= ALL (p_limits) THEN
        SELECT array_agg(c.place), array_agg(c.id), array_agg(c.kind), array_agg(c.priority), array_agg(c.scheduled_at)
        INTO v_places, v_ids, v_kinds, v_priorities, v_times
        FROM (
            SELECT r.place, r.id, t.n::integer AS kind, r.priority, r.scheduled_at
            FROM unnest(p_types, p_queues, v_mark_priority, v_mark_time, v_mark_id) WITH ORDINALITY
                AS t (name, queue, mark_priority, mark_time, mark_id, n)
            CROSS JOIN LATERAL (
                SELECT e.ctid AS place, e.priority, e.scheduled_at, e.id FROM "public"."queuert_ready" AS e
                WHERE e.type_name = t.name
                    AND (e.priority, e.scheduled_at, e.id) > (t.mark_priority, t.mark_time, t.mark_id)
                ORDER BY e.priority, e.scheduled_at, e.id LIMIT v_wanted
            ) AS r
            ORDER BY p_queue_priorities[t.queue], r.priority, r.scheduled_at, r.id
            LIMIT v_wanted
        ) AS c;
        IF v_ids IS NOT NULL THEN
            SELECT array_agg(locked.id ORDER BY locked.id) IS DISTINCT FROM (SELECT array_agg(c.id ORDER BY c.id) FROM unnest(v_ids) AS c (id))
            INTO v_in_turn
            FROM (SELECT r.id FROM "public"."queuert_ready" AS r WHERE r.ctid = ANY (v_places) FOR UPDATE SKIP LOCKED) AS locked;
            IF NOT v_in_turn THEN
                v_taken := v_places;
                v_found := v_ids;
                v_types := v_kinds;
                FOR v_type, v_row, v_count IN
                    SELECT k.kind, max(k.n), count(*) FROM unnest(v_kinds) WITH ORDINALITY AS k (kind, n) GROUP BY k.kind
                LOOP
                    v_left[v_type] := v_left[v_type] - v_count;
                    v_mark_priority[v_type] := v_priorities[v_row];
                    v_mark_time[v_type] := v_times[v_row];
                    v_mark_id[v_type] := v_ids[v_row];
                END LOOP;
            END IF;
        END IF;
    ELSE
        v_in_turn := true;
    END IF;
    IF v_in_turn THEN
        v_window := v_wanted;
        WHILE cardinality(v_found) < v_wanted LOOP
            SELECT array_agg(c.place), array_agg(c.id), array_agg(c.kind), array_agg(c.priority), array_agg(c.scheduled_at)
            INTO v_places, v_ids, v_kinds, v_priorities, v_times
            FROM (
                SELECT r.place, r.id, t.n::integer AS kind, r.priority, r.scheduled_at
                FROM unnest(p_types, p_queues, v_left, v_mark_priority, v_mark_time, v_mark_id) WITH ORDINALITY
                    AS t (name, queue, left_over, mark_priority, mark_time, mark_id, n)
                CROSS JOIN LATERAL (
                    SELECT e.ctid AS place, e.priority, e.scheduled_at, e.id FROM "public"."queuert_ready" AS e
                    WHERE e.type_name = t.name
                        AND (e.priority, e.scheduled_at, e.id) > (t.mark_priority, t.mark_time, t.mark_id)
                    ORDER BY e.priority, e.scheduled_at, e.id LIMIT v_window
                ) AS r
                WHERE t.left_over > 0 AND (v_room[t.queue] IS NULL OR v_room[t.queue] > 0)
                ORDER BY p_queue_priorities[t.queue], r.priority, r.scheduled_at, r.id
                LIMIT v_window
            ) AS c;
            EXIT WHEN v_ids IS NULL;
            v_missed := false;
            v_chosen := '{}';
            v_chosen_places := '{}';
            v_chosen_ids := '{}';
            FOR v_row IN 1..cardinality(v_ids) LOOP
                v_type := v_kinds[v_row];
                CONTINUE WHEN v_left[v_type] <= 0 OR v_room[p_queues[v_type]] <= 0;
                v_mark_priority[v_type] := v_priorities[v_row];
                v_mark_time[v_type] := v_times[v_row];
                v_mark_id[v_type] := v_ids[v_row];
                IF NOT v_first THEN
                    PERFORM FROM "public"."queuert_ready" AS r WHERE r.ctid = v_places[v_row] AND r.id = v_ids[v_row] FOR UPDATE SKIP LOCKED;
                    CONTINUE WHEN NOT FOUND;
                    v_taken := v_taken || v_places[v_row];
                    v_found := v_found || v_ids[v_row];
                    v_types := v_types || v_type;
                ELSE
                    v_chosen := v_chosen || v_row;
                    v_chosen_places := v_chosen_places || v_places[v_row];
                    v_chosen_ids := v_chosen_ids || v_ids[v_row];
                END IF;
                v_left[v_type] := v_left[v_type] - 1;
                IF v_capped THEN
                    v_room := "public"."queuert_change_room"(v_room, -1, p_member_queues, p_member_types, p_types[v_type]);
                END IF;
                EXIT WHEN cardinality(v_found) + cardinality(v_chosen) >= v_wanted;
            END LOOP;
            IF v_first THEN
                SELECT coalesce(array_agg(locked.row), '{}') INTO v_free FROM (
                    SELECT c.row FROM unnest(v_chosen, v_chosen_places, v_chosen_ids) AS c (row, place, id)
                    JOIN "public"."queuert_ready" AS r ON r.ctid = c.place AND r.id = c.id
                    FOR UPDATE OF r SKIP LOCKED
                ) AS locked;
                v_missed := cardinality(v_free) < cardinality(v_chosen);
                FOREACH v_row IN ARRAY v_chosen LOOP
                    v_type := v_kinds[v_row];
                    IF NOT v_missed OR v_row = ANY (v_free) THEN
                        v_taken := v_taken || v_places[v_row];
                        v_found := v_found || v_ids[v_row];
                        v_types := v_types || v_type;
                    ELSE
                        v_left[v_type] := v_left[v_type] + 1;
                        IF v_capped THEN
                            v_room := "public"."queuert_change_room"(v_room, 1, p_member_queues, p_member_types, p_types[v_type]);
                        END IF;
                    END IF;
                END LOOP;
                v_first := NOT v_missed;
            END IF;
            EXIT WHEN cardinality(v_ids) < v_window AND NOT v_missed;
            v_window := least(greatest(v_window * 2, 20), greatest(p_limit, 1000));
        END LOOP;
    END IF;
    v_pages := pg_stat_get_xact_blocks_fetched('"public"."queuert_ready_pkey"'::regclass) - v_pages;
    IF cardinality(v_found) >= p_limit AND (p_cluster_cap IS NULL OR v_total > p_limit) THEN
        v_more := EXISTS (
            SELECT FROM unnest(p_types, p_queues, v_left, v_mark_priority, v_mark_time, v_mark_id)
                AS t (name, queue, left_over, mark_priority, mark_time, mark_id)
            WHERE t.left_over > 0 AND (v_room[t.queue] IS NULL OR v_room[t.queue] > 0) AND EXISTS (
                SELECT FROM "public"."queuert_ready" AS e WHERE e.type_name = t.name
                    AND (e.priority, e.scheduled_at, e.id) > (t.mark_priority, t.mark_time, t.mark_id)
                ORDER BY e.priority, e.scheduled_at, e.id LIMIT 1
            )
        );
    END IF;
    IF cardinality(v_found) > 0 THEN
        DELETE FROM "public"."queuert_ready" WHERE ctid = ANY (v_taken);
        v_tokens := ARRAY(SELECT nextval('"public"."queuert_token"') FROM unnest(v_found));
        INSERT INTO "public"."queuert_running" (job_id, token, type_name, worker, leased_until, started_at)
        SELECT f.id, f.token, p_types[f.kind], p_worker, v_now + make_interval(secs => p_leases[f.kind]), v_now
        FROM unnest(v_found, v_types, v_tokens) AS f (id, kind, token);
    END IF;
    IF v_marked AND NOT v_more THEN
        RETURN QUERY SELECT * FROM "public"."queuert_claim"(
            p_worker, p_limit - cardinality(v_found), p_types, p_queues, v_left, p_leases, p_queue_names, p_queue_priorities,
            p_queue_caps, p_member_queues, p_member_types, p_cluster_cap, NULL
        );
    ELSE
        IF NOT v_more THEN
            SELECT min(due.scheduled_at) INTO v_next FROM unnest(p_types) AS asked (type_name)
            CROSS JOIN LATERAL (
                SELECT l.scheduled_at FROM "public"."queuert_later" AS l WHERE l.type_name = asked.type_name AND l.scheduled_at > v_now
                ORDER BY l.scheduled_at LIMIT 1
            ) AS due;
        END IF;
        RETURN QUERY SELECT NULL, NULL, NULL, NULL, NULL::integer, NULL, NULL::integer, NULL::double precision,
            NULL::double precision, NULL::integer, NULL::bigint, NULL, NULL::timestamptz, NULL, NULL::integer, NULL, NULL, NULL::boolean,
            CASE WHEN v_marked OR v_pages > v_number * (20 + p_limit / 20)
                THEN "public"."queuert_marks"(p_types, v_mark_priority, v_mark_time, v_mark_id, v_since, v_until, v_moved_all, v_now) END,
            v_more, extract(epoch FROM v_next - v_now)::double precision, v_now;
    END IF;
    IF cardinality(v_found) = 0 THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT j.id::text, j.type_name, CASE WHEN j.chain_index > 0 THEN j.chain_id::text END, j.chain_type, j.chain_index, j.input::text,
        j.priority, date_part('epoch', j.created_at), date_part('epoch', j.scheduled_at), j.attempt + 1, f.token, j.last_error::text, j.deadline, j.dedup_key,
        nullif(j.blockers_left, 0), j.trace_context, j.chain_trace_context, j.deadline IS NOT NULL AND j.deadline <= v_now,
        CASE WHEN j.blocker_count > 0 THEN (SELECT json_agg(b.* ORDER BY b.place)::text FROM "public"."queuert_blockers_of"(j.id) AS b) END,
        NULL::boolean, NULL::double precision, NULL::timestamptz
    FROM unnest(v_found, v_types, v_tokens) AS f (id, kind, token) JOIN "public"."queuert_job" AS j ON j.id = f.id
    ORDER BY p_queue_priorities[p_queues[f.kind]], j.priority, j.scheduled_at, j.id;
END $body$;
CREATE FUNCTION "public"."queuert_renew"(p_ids text[], p_tokens bigint[], p_durations double precision[]) RETURNS TABLE (id text)
LANGUAGE plpgsql SET plan_cache_mode TO force_generic_plan SET enable_seqscan TO off SET enable_bitmapscan TO off SET enable_hashjoin TO off SET enable_mergejoin TO off SET jit TO off AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    WITH free AS (
        SELECT r.job_id, asked.duration
        FROM unnest(p_ids::uuid[], p_tokens, p_durations) AS asked (id, token, duration)
        JOIN "public"."queuert_running" AS r ON r.job_id = asked.id AND r.token = asked.token
        ORDER BY r.job_id FOR UPDATE OF r SKIP LOCKED
    )
    UPDATE "public"."queuert_running" AS r SET leased_until = v_now + make_interval(secs => free.duration) FROM free WHERE r.job_id = free.job_id;
    RETURN QUERY
    SELECT asked.id::text FROM unnest(p_ids::uuid[], p_tokens) WITH ORDINALITY AS asked (id, token, n)
    WHERE NOT EXISTS (SELECT FROM "public"."queuert_running" AS r WHERE r.job_id = asked.id AND r.token = asked.token)
    ORDER BY asked.n;
END $body$;
CREATE FUNCTION "public"."queuert_hold"(p_id text, p_token bigint, p_lock boolean) RETURNS boolean LANGUAGE plpgsql SET enable_seqscan TO off AS $body$
BEGIN
    IF p_lock THEN
        PERFORM FROM "public"."queuert_running" WHERE job_id = p_id::uuid AND token = p_token FOR UPDATE;
    ELSE
        PERFORM FROM "public"."queuert_running" WHERE job_id = p_id::uuid AND token = p_token;
    END IF;
    RETURN FOUND;
END $body$;
CREATE FUNCTION "public"."queuert_reap"(p_types text[], p_ignored text[], p_limit integer, p_error text) RETURNS SETOF text
LANGUAGE plpgsql SET plan_cache_mode TO force_generic_plan SET enable_seqscan TO off SET enable_bitmapscan TO off SET enable_hashjoin TO off SET enable_mergejoin TO off SET jit TO off AS $body$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_id uuid;
    v_ids uuid[] := '{}';
BEGIN
    FOR v_id IN
        SELECT r.job_id FROM "public"."queuert_running" AS r
        WHERE r.leased_until <= v_now AND r.type_name = ANY (p_types) AND r.job_id <> ALL (p_ignored::uuid[])
        ORDER BY r.leased_until, r.job_id FOR UPDATE SKIP LOCKED
    LOOP
        PERFORM FROM "public"."queuert_job" WHERE id = v_id FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        v_ids := v_ids || v_id;
        EXIT WHEN cardinality(v_ids) >= p_limit;
    END LOOP;
    IF cardinality(v_ids) = 0 THEN
        RETURN;
    END IF;
    UPDATE "public"."queuert_job" AS j SET attempt = j.attempt + 1, last_attempt_at = r.started_at, last_error = p_error::json
    FROM "public"."queuert_running" AS r WHERE r.job_id = ANY (v_ids) AND j.id = ANY (v_ids) AND j.id = r.job_id;
    DELETE FROM "public"."queuert_running" WHERE job_id = ANY (v_ids);
    PERFORM "public"."queuert_launch"(v_ids, v_now);
    RETURN QUERY SELECT id::text FROM unnest(v_ids) AS id;
END $body$;
INSERT INTO "public"."queuert_schema_version" (version) VALUES (4);
CREATE FUNCTION "public"."queuert_complete"(
    p_ids uuid[], p_tokens bigint[], p_texts text[], p_worker text,
    p_next uuid[], p_next_types text[], p_next_priorities integer[], p_next_traces text[], p_next_chain_traces text[]
) RETURNS TABLE (kind text, place integer, id text, type_name text, ready boolean) LANGUAGE plpgsql SET plan_cache_mode TO force_generic_plan SET enable_seqscan TO off SET enable_bitmapscan TO off SET enable_hashjoin TO off SET enable_mergejoin TO off SET jit TO off AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_places integer[];
    v_ids uuid[];
    v_started timestamptz[];
    v_texts text[] := p_texts;
    v_next uuid[] := p_next;
    v_types text[] := p_next_types;
    v_priorities integer[] := p_next_priorities;
    v_traces text[] := p_next_traces;
    v_chain_traces text[] := p_next_chain_traces;
    v_completed uuid[];
BEGIN
    SELECT array_agg(asked.n::integer), array_agg(r.job_id), array_agg(r.started_at) INTO v_places, v_ids, v_started
    FROM unnest(p_ids, p_tokens) WITH ORDINALITY AS asked (id, token, n)
    CROSS JOIN LATERAL (
        SELECT e.job_id, e.started_at FROM "public"."queuert_running" AS e WHERE e.job_id = asked.id AND e.token = asked.token FOR UPDATE
    ) AS r;
    IF v_ids IS NULL OR cardinality(v_ids) < cardinality(p_ids) THEN
        RETURN QUERY SELECT 'lost', n, NULL, NULL, NULL::boolean FROM generate_series(1, cardinality(p_ids)) AS n
        WHERE n <> ALL (coalesce(v_places, '{}'));
        IF v_ids IS NULL THEN
            RETURN;
        END IF;
        SELECT array_agg(p_texts[n]), array_agg(p_next[n]), array_agg(p_next_types[n]), array_agg(p_next_priorities[n]),
            array_agg(p_next_traces[n]), array_agg(p_next_chain_traces[n])
        INTO v_texts, v_next, v_types, v_priorities, v_traces, v_chain_traces FROM unnest(v_places) AS n;
    END IF;
    IF cardinality(p_next) = 0 THEN
        DELETE FROM "public"."queuert_running" WHERE job_id = ANY (v_ids);
        v_now := clock_timestamp();
        WITH ended AS (
            UPDATE "public"."queuert_job" AS j SET
                status = 'completed',
                output = x.output::json,
                completed_at = v_now,
                completed_by = p_worker,
                attempt = j.attempt + 1,
                last_attempt_at = x.started_at
            FROM unnest(v_ids, v_started, v_texts) AS x (id, started_at, output)
            WHERE j.id = x.id
            RETURNING j.chain_id, j.dependents
        )
        SELECT array_agg(ended.chain_id) INTO v_completed FROM ended WHERE ended.dependents > 0;
    ELSE
        PERFORM FROM "public"."queuert_job" WHERE id = ANY (v_next) LIMIT 1;
        IF FOUND THEN
            RETURN QUERY SELECT 'exists', NULL::integer, NULL, NULL, NULL::boolean;
            RETURN;
        END IF;
        DELETE FROM "public"."queuert_running" WHERE job_id = ANY (v_ids);
        v_now := clock_timestamp();
        WITH ended AS (
            UPDATE "public"."queuert_job" AS j SET
                status = 'completed',
                output = CASE WHEN x.next IS NULL THEN x.text::json END,
                continued_to = x.next,
                completed_at = v_now,
                completed_by = p_worker,
                attempt = j.attempt + 1,
                last_attempt_at = x.started_at
            FROM unnest(v_ids, v_started, v_texts, v_next, v_types, v_priorities, v_traces, v_chain_traces)
                AS x (id, started_at, text, next, next_type, next_priority, next_trace, next_chain_trace)
            WHERE j.id = x.id
            RETURNING j.chain_id, j.chain_type, j.chain_index, j.dependents, x.*
        ), stored AS (
            INSERT INTO "public"."queuert_job" (
                id, type_name, chain_id, chain_type, chain_index, input, status, priority, created_at, scheduled_at, dependents,
                trace_context, chain_trace_context
            )
            SELECT e.next, e.next_type, e.chain_id, e.chain_type, e.chain_index + 1, e.text::json, 'pending', e.next_priority, v_now, v_now,
                e.dependents, e.next_trace, e.next_chain_trace
            FROM ended AS e WHERE e.next IS NOT NULL
        )
        SELECT array_agg(ended.chain_id) INTO v_completed FROM ended WHERE ended.next IS NULL AND ended.dependents > 0;
        INSERT INTO "public"."queuert_ready" (type_name, priority, scheduled_at, id)
        SELECT n.type_name, n.priority, v_now, n.id FROM unnest(v_next, v_types, v_priorities) AS n (id, type_name, priority)
        WHERE n.id IS NOT NULL;
    END IF;
    IF v_completed IS NOT NULL THEN
        RETURN QUERY SELECT 'unblocked', NULL::integer, u.job_id::text, u.type_name, u.ready FROM "public"."queuert_unblock"(v_completed, v_now) AS u;
    END IF;
END $body$;
CREATE FUNCTION "public"."queuert_settle"(
    p_ids text[], p_tokens bigint[], p_statuses text[], p_outputs text[], p_errors text[], p_at timestamptz[],
    p_after double precision[], p_give_back boolean[], p_workers text[],
    p_next_positions integer[], p_next_ids text[], p_next_types text[], p_next_inputs text[], p_next_priorities integer[],
    p_next_at timestamptz[], p_next_after double precision[], p_next_deadline_at timestamptz[],
    p_next_deadline_after double precision[], p_next_traces text[], p_next_chain_traces text[],
    p_edge_places integer[], p_edge_chains text[], p_edge_types text[], p_edge_within integer[], p_edge_traces text[]
) RETURNS TABLE (kind text, place integer, id text, type_name text, status text, ready boolean, problem text)
LANGUAGE plpgsql SET plan_cache_mode TO force_generic_plan SET enable_seqscan TO off SET enable_bitmapscan TO off SET enable_hashjoin TO off SET enable_mergejoin TO off SET jit TO off AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_all uuid[] := p_ids::uuid[];
    v_held boolean[] := array_fill(false, ARRAY[cardinality(p_ids)]);
    v_started timestamptz[] := array_fill(NULL::timestamptz, ARRAY[cardinality(p_ids)]);
    v_next uuid[];
    v_ids uuid[] := '{}';
    v_loose uuid[] := '{}';
    v_last uuid;
    v_item record;
    v_next_ids uuid[] := p_next_ids::uuid[];
    v_next_held boolean[] := '{}';
    v_edge_jobs uuid[] := '{}';
    v_edge_own uuid[] := '{}';
    v_edge_places integer[] := '{}';
    v_edge_chains uuid[] := '{}';
    v_edge_types text[] := '{}';
    v_edge_within integer[] := '{}';
    v_edge_traces text[] := '{}';
    v_edges integer[];
    v_waiting integer[];
    v_dependents integer[];
    v_problem jsonb;
    v_completed uuid[];
    v_put_back uuid[];
BEGIN
    FOR v_item IN
        SELECT asked.n::integer AS n, r.job_id AS id, r.started_at
        FROM unnest(v_all, p_tokens) WITH ORDINALITY AS asked (id, token, n)
        JOIN "public"."queuert_running" AS r ON r.job_id = asked.id AND r.token = asked.token
        ORDER BY r.job_id, asked.n FOR UPDATE OF r
    LOOP
        CONTINUE WHEN v_item.id = v_last;
        v_last := v_item.id;
        v_ids := v_ids || v_item.id;
        v_held[v_item.n] := true;
        v_started[v_item.n] := v_item.started_at;
    END LOOP;
    IF array_position(p_tokens, NULL) IS NOT NULL THEN
        v_loose := array(
            SELECT DISTINCT asked.id FROM unnest(v_all, p_tokens) AS asked (id, token)
            WHERE asked.token IS NULL AND asked.id <> ALL (v_ids)
        );
        PERFORM "public"."queuert_lock_jobs"(v_loose);
        FOR v_item IN
            SELECT min(asked.n)::integer AS n, j.id, r.started_at
            FROM unnest(v_all, p_tokens) WITH ORDINALITY AS asked (id, token, n)
            JOIN "public"."queuert_job" AS j ON j.id = asked.id AND j.status IN ('blocked', 'pending')
            LEFT JOIN "public"."queuert_running" AS r ON r.job_id = j.id
            WHERE asked.token IS NULL AND asked.id = ANY (v_loose)
            GROUP BY j.id, r.started_at
        LOOP
            v_ids := v_ids || v_item.id;
            v_held[v_item.n] := true;
            v_started[v_item.n] := v_item.started_at;
        END LOOP;
    END IF;
    IF cardinality(v_ids) = 0 THEN
        RETURN;
    END IF;

    IF cardinality(p_next_ids) > 0 THEN
        v_next := array_fill(NULL::uuid, ARRAY[cardinality(p_ids)]);
        FOR v_row IN 1..cardinality(p_next_ids) LOOP
            v_next_held := v_next_held || v_held[p_next_positions[v_row]];
            IF v_next_held[v_row] THEN
                v_next[p_next_positions[v_row]] := v_next_ids[v_row];
            END IF;
        END LOOP;
    END IF;
    IF cardinality(p_edge_places) > 0 THEN
        FOR v_item IN
            SELECT edge.*, j.chain_id AS own
            FROM unnest(p_edge_places, p_edge_chains::uuid[], p_edge_types, p_edge_within, p_edge_traces) WITH ORDINALITY
                AS edge (place, chain_id, type_name, within, trace, n)
            JOIN "public"."queuert_job" AS j ON j.id = v_all[p_next_positions[edge.place]]
            WHERE v_next_held[edge.place] ORDER BY edge.n
        LOOP
            v_edge_jobs := v_edge_jobs || v_next_ids[v_item.place];
            v_edge_own := v_edge_own || v_item.own;
            v_edge_places := v_edge_places || v_item.place;
            v_edge_chains := v_edge_chains || v_item.chain_id;
            v_edge_types := v_edge_types || v_item.type_name;
            v_edge_within := v_edge_within || CASE WHEN v_next_held[v_item.within] THEN v_item.within END;
            v_edge_traces := v_edge_traces || v_item.trace;
        END LOOP;
    END IF;
    IF cardinality(v_edge_jobs) > 0 THEN
        PERFORM "public"."queuert_lock_current"(array(SELECT DISTINCT edge FROM unnest(v_edge_chains) AS edge), v_ids);
    ELSE
        PERFORM FROM "public"."queuert_job" WHERE id = ANY (v_ids) ORDER BY status = 'blocked', id FOR NO KEY UPDATE;
    END IF;
    v_now := clock_timestamp();
    IF cardinality(p_next_ids) > 0 THEN
        SELECT jsonb_build_object('problem', 'id_exists', 'job_id', asked.id) INTO v_problem
        FROM (
            SELECT new.id, new.n, row_number() OVER (PARTITION BY new.id ORDER BY new.n) AS time
            FROM unnest(v_next_ids, v_next_held) WITH ORDINALITY AS new (id, held, n) WHERE new.held
        ) AS asked
        WHERE asked.time > 1 OR EXISTS (SELECT FROM "public"."queuert_job" AS j WHERE j.id = asked.id OFFSET 0)
        ORDER BY asked.n LIMIT 1;
        IF v_problem IS NULL AND cardinality(v_edge_jobs) > 0 THEN
            v_problem := "public"."queuert_check_edges"(v_edge_jobs, v_edge_own, v_edge_chains, v_edge_types, '{}');
        END IF;
        IF v_problem IS NOT NULL THEN
            RETURN QUERY SELECT 'problem', NULL::integer, NULL::text, NULL::text, NULL::text, NULL::boolean, v_problem::text;
            RETURN;
        END IF;
    END IF;

    IF cardinality(v_loose) > 0 THEN
        PERFORM "public"."queuert_land"(v_ids);
    ELSE
        DELETE FROM "public"."queuert_running" WHERE job_id = ANY (v_ids);
    END IF;
    WITH ended AS (
        UPDATE "public"."queuert_job" AS j SET
            status = x.status,
            resting = CASE WHEN x.status IN ('failed', 'cancelled', 'expired') THEN x.status END,
            output = x.output::json,
            continued_to = x.next,
            completed_at = CASE WHEN x.status <> 'pending' THEN v_now END,
            completed_by = CASE WHEN x.status <> 'pending' THEN x.worker END,
            attempt = j.attempt + (x.started_at IS NOT NULL AND NOT x.give_back)::integer,
            last_attempt_at = coalesce(x.started_at, j.last_attempt_at),
            last_error = coalesce(x.error::json, j.last_error),
            scheduled_at = CASE WHEN x.status = 'pending' AND NOT x.give_back
                THEN coalesce(x.at_time, v_now + make_interval(secs => coalesce(x.after_time, 0)))
                ELSE j.scheduled_at END
        FROM unnest(v_all, v_held, v_started, v_next, p_statuses, p_outputs, p_errors, p_at, p_after, p_give_back, p_workers)
            AS x (id, held, started_at, next, status, output, error, at_time, after_time, give_back, worker)
        WHERE x.held AND j.id = x.id
        RETURNING j.id, j.chain_id, j.status, j.continued_to, j.dependents
    )
    SELECT
        array_agg(ended.chain_id) FILTER (WHERE ended.status = 'completed' AND ended.continued_to IS NULL AND ended.dependents > 0),
        array_agg(ended.id) FILTER (WHERE ended.status = 'pending')
    INTO v_completed, v_put_back FROM ended;
    IF v_put_back IS NOT NULL THEN
        PERFORM "public"."queuert_launch"(v_put_back, v_now);
    END IF;
    RETURN QUERY SELECT 'held', h.n::integer, NULL::text, NULL::text, NULL::text, NULL::boolean, NULL::text
    FROM unnest(v_held) WITH ORDINALITY AS h (held, n) WHERE h.held;
    IF v_completed IS NOT NULL THEN
        RETURN QUERY SELECT 'unblocked', NULL::integer, u.job_id::text, u.type_name, NULL::text, u.ready, NULL::text
        FROM "public"."queuert_unblock"(v_completed, v_now) AS u;
    END IF;
    IF cardinality(p_next_ids) > 0 THEN
        IF cardinality(v_edge_jobs) > 0 THEN
            SELECT counted.o_edges, counted.o_waiting, counted.o_dependents INTO v_edges, v_waiting, v_dependents
            FROM "public"."queuert_count_edges"(v_edge_places, v_edge_chains, v_edge_within, cardinality(p_next_ids)) AS counted;
            PERFORM "public"."queuert_add_edges"(v_edge_jobs, v_edge_chains, v_edge_within, v_edge_traces);
        END IF;
        RETURN QUERY
        WITH next AS (
            SELECT array_agg(j.chain_id ORDER BY n.n) AS chains, array_agg(j.chain_type ORDER BY n.n) AS chain_types,
                array_agg(j.chain_index + 1 ORDER BY n.n) AS indexes,
                array_agg(j.dependents + coalesce(v_dependents[n.n], 0) ORDER BY n.n) AS dependents
            FROM unnest(p_next_positions) WITH ORDINALITY AS n (place, n) LEFT JOIN "public"."queuert_job" AS j ON j.id = v_all[n.place]
        )
        SELECT 'created', NULL::integer, made.id::text, NULL::text, made.status, made.ready, NULL::text
        FROM next, "public"."queuert_insert_jobs"(
            v_next_ids, p_next_types, next.chains, next.chain_types, next.indexes, p_next_inputs, p_next_priorities, p_next_at,
            p_next_after, p_next_deadline_at, p_next_deadline_after, '{}', p_next_traces, p_next_chain_traces,
            v_next_held, v_edges, v_waiting, next.dependents, v_now
        ) AS made;
    END IF;
END $body$;
INSERT INTO "public"."queuert_schema_version" (version) VALUES (5);
CREATE FUNCTION "public"."queuert_get_chains_locked"(p_ids text[]) RETURNS TABLE (first_id text, first_type_name text, first_chain_id text, first_chain_type text, first_chain_index integer, first_input text, first_output text, first_status text, first_priority integer, first_created_at timestamptz, first_scheduled_at timestamptz, first_completed_at timestamptz, first_completed_by text, first_continued_to text, first_attempt integer, first_last_attempt_at timestamptz, first_last_error text, first_leased_by text, first_leased_until timestamptz, first_token bigint, first_deadline timestamptz, first_dedup_key text, first_blockers_left integer, first_trace_context text, first_chain_trace_context text, current_id text, current_type_name text, current_chain_id text, current_chain_type text, current_chain_index integer, current_input text, current_output text, current_status text, current_priority integer, current_created_at timestamptz, current_scheduled_at timestamptz, current_completed_at timestamptz, current_completed_by text, current_continued_to text, current_attempt integer, current_last_attempt_at timestamptz, current_last_error text, current_leased_by text, current_leased_until timestamptz, current_token bigint, current_deadline timestamptz, current_dedup_key text, current_blockers_left integer, current_trace_context text, current_chain_trace_context text) LANGUAGE plpgsql SET plan_cache_mode TO force_generic_plan SET enable_seqscan TO off SET enable_bitmapscan TO off SET enable_hashjoin TO off SET enable_mergejoin TO off SET jit TO off AS $body$
#variable_conflict use_column
DECLARE
    v_ids uuid[];
    v_again uuid[];
BEGIN
    LOOP
        BEGIN
            v_ids := array(
                SELECT last.id FROM unnest(p_ids::uuid[]) WITH ORDINALITY AS asked (chain_id, n)
                CROSS JOIN LATERAL (
                    SELECT j.id FROM "public"."queuert_job" AS j WHERE j.chain_id = asked.chain_id ORDER BY j.chain_index DESC LIMIT 1
                ) AS last
                ORDER BY asked.n
            );
            PERFORM "public"."queuert_lock_jobs"(v_ids);
            v_again := array(
                SELECT last.id FROM unnest(p_ids::uuid[]) WITH ORDINALITY AS asked (chain_id, n)
                CROSS JOIN LATERAL (
                    SELECT j.id FROM "public"."queuert_job" AS j WHERE j.chain_id = asked.chain_id ORDER BY j.chain_index DESC LIMIT 1
                ) AS last
                ORDER BY asked.n
            );
            EXIT WHEN v_again = v_ids;
            RAISE SQLSTATE 'QUE00';
        EXCEPTION WHEN SQLSTATE 'QUE00' THEN
            NULL;
        END;
    END LOOP;
    RETURN QUERY SELECT * FROM "public"."queuert_read_chains"(p_ids);
END $body$;
CREATE FUNCTION "public"."queuert_trigger"(p_ids text[]) RETURNS SETOF text LANGUAGE plpgsql SET plan_cache_mode TO force_generic_plan SET enable_seqscan TO off SET enable_bitmapscan TO off SET enable_hashjoin TO off SET enable_mergejoin TO off SET jit TO off AS $body$
DECLARE
    v_now timestamptz;
    v_ids uuid[];
BEGIN
    PERFORM "public"."queuert_lock_jobs"(p_ids::uuid[]);
    v_now := clock_timestamp();
    v_ids := array(
        SELECT j.id FROM "public"."queuert_job" AS j WHERE j.id = ANY (p_ids::uuid[]) AND j.status = 'pending'
            AND NOT EXISTS (SELECT FROM "public"."queuert_running" AS r WHERE r.job_id = j.id)
    );
    WITH early AS (
        DELETE FROM "public"."queuert_later" AS l USING "public"."queuert_job" AS j
        WHERE j.id = ANY (v_ids) AND l.type_name = j.type_name AND l.scheduled_at = j.scheduled_at AND l.id = j.id
        RETURNING l.type_name, l.priority, l.id, l.scheduled_at
    ), moved AS (
        INSERT INTO "public"."queuert_ready" (type_name, priority, scheduled_at, id)
        SELECT e.type_name, e.priority, least(e.scheduled_at, v_now), e.id FROM early AS e
        RETURNING id, scheduled_at
    )
    UPDATE "public"."queuert_job" AS j SET scheduled_at = moved.scheduled_at FROM moved WHERE j.id = moved.id;
    RETURN QUERY SELECT id::text FROM unnest(v_ids) AS id;
END $body$;
CREATE FUNCTION "public"."queuert_retry"(p_ids text[]) RETURNS SETOF text LANGUAGE plpgsql SET plan_cache_mode TO force_generic_plan SET enable_seqscan TO off SET enable_bitmapscan TO off SET enable_hashjoin TO off SET enable_mergejoin TO off SET jit TO off AS $body$
DECLARE
    v_now timestamptz;
    v_ids uuid[];
BEGIN
    PERFORM FROM "public"."queuert_job" WHERE id = ANY (p_ids::uuid[]) ORDER BY status = 'blocked', id FOR UPDATE;
    v_now := clock_timestamp();
    WITH revived AS (
        UPDATE "public"."queuert_job" AS j SET status = 'pending', resting = NULL, attempt = 0, scheduled_at = v_now, completed_at = NULL,
            completed_by = NULL
        WHERE j.id = ANY (p_ids::uuid[]) AND j.status = 'failed'
        RETURNING j.id
    )
    SELECT array_agg(id) INTO v_ids FROM revived;
    IF v_ids IS NOT NULL THEN
        PERFORM "public"."queuert_launch"(v_ids, v_now);
        RETURN QUERY SELECT id::text FROM unnest(v_ids) AS id;
    END IF;
END $body$;
CREATE FUNCTION "public"."queuert_chains_to_delete"(p_ids text[], p_cascade boolean) RETURNS uuid[] LANGUAGE plpgsql AS $body$
BEGIN
    RETURN array(
        WITH RECURSIVE wanted AS (
            SELECT j.id FROM unnest(p_ids::uuid[]) AS asked (id) JOIN "public"."queuert_job" AS j ON j.id = asked.id AND j.chain_index <= 0
            UNION
            SELECT edge.chain_id FROM wanted
            CROSS JOIN LATERAL (SELECT j.id FROM "public"."queuert_job" AS j WHERE j.chain_id = wanted.id OFFSET 0) AS member
            CROSS JOIN LATERAL (SELECT b.chain_id FROM "public"."queuert_blocker" AS b WHERE b.job_id = member.id OFFSET 0) AS edge
            WHERE p_cascade
        )
        SELECT id FROM wanted ORDER BY id
    );
END $body$;
CREATE FUNCTION "public"."queuert_delete_chains"(p_ids text[], p_cascade boolean)
RETURNS TABLE (kind text, chain text, job text, first_id text, first_type_name text, first_chain_id text, first_chain_type text, first_chain_index integer, first_input text, first_output text, first_status text, first_priority integer, first_created_at timestamptz, first_scheduled_at timestamptz, first_completed_at timestamptz, first_completed_by text, first_continued_to text, first_attempt integer, first_last_attempt_at timestamptz, first_last_error text, first_leased_by text, first_leased_until timestamptz, first_token bigint, first_deadline timestamptz, first_dedup_key text, first_blockers_left integer, first_trace_context text, first_chain_trace_context text, current_id text, current_type_name text, current_chain_id text, current_chain_type text, current_chain_index integer, current_input text, current_output text, current_status text, current_priority integer, current_created_at timestamptz, current_scheduled_at timestamptz, current_completed_at timestamptz, current_completed_by text, current_continued_to text, current_attempt integer, current_last_attempt_at timestamptz, current_last_error text, current_leased_by text, current_leased_until timestamptz, current_token bigint, current_deadline timestamptz, current_dedup_key text, current_blockers_left integer, current_trace_context text, current_chain_trace_context text) LANGUAGE plpgsql SET plan_cache_mode TO force_generic_plan SET enable_seqscan TO off SET enable_bitmapscan TO off SET enable_hashjoin TO off SET enable_mergejoin TO off SET jit TO off AS $body$
#variable_conflict use_column
DECLARE
    v_chains uuid[];
    v_jobs uuid[];
    v_again uuid[];
BEGIN
    LOOP
        BEGIN
            v_chains := "public"."queuert_chains_to_delete"(p_ids, p_cascade);
            IF cardinality(v_chains) = 0 THEN
                RETURN;
            END IF;
            v_jobs := array(SELECT j.id FROM "public"."queuert_job" AS j WHERE j.chain_id = ANY (v_chains) ORDER BY j.chain_id, j.chain_index);
            PERFORM "public"."queuert_lock_jobs"(v_jobs, v_chains);
            v_again := array(SELECT j.id FROM "public"."queuert_job" AS j WHERE j.chain_id = ANY (v_chains) ORDER BY j.chain_id, j.chain_index);
            EXIT WHEN v_again = v_jobs AND "public"."queuert_chains_to_delete"(p_ids, p_cascade) = v_chains;
            RAISE SQLSTATE 'QUE00';
        EXCEPTION WHEN SQLSTATE 'QUE00' THEN
            NULL;
        END;
    END LOOP;
    RETURN QUERY
    SELECT 'waiting', b.chain_id::text, b.job_id::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::integer, NULL::text, NULL::text, NULL::text, NULL::integer, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, NULL::text, NULL::text, NULL::integer, NULL::timestamptz, NULL::text, NULL::text, NULL::timestamptz, NULL::bigint, NULL::timestamptz, NULL::text, NULL::integer, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::integer, NULL::text, NULL::text, NULL::text, NULL::integer, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, NULL::text, NULL::text, NULL::integer, NULL::timestamptz, NULL::text, NULL::text, NULL::timestamptz, NULL::bigint, NULL::timestamptz, NULL::text, NULL::integer, NULL::text, NULL::text
    FROM "public"."queuert_blocker" AS b
    CROSS JOIN LATERAL (SELECT o.chain_id, o.status FROM "public"."queuert_job" AS o WHERE o.id = b.job_id OFFSET 0) AS j
    WHERE b.chain_id = ANY (v_chains) AND j.chain_id <> ALL (v_chains) AND j.status IN ('blocked', 'pending', 'failed')
    ORDER BY b.chain_id, b.job_id;
    IF FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT 'deleted', NULL::text, NULL::text, chains.* FROM "public"."queuert_read_chains"(v_chains::text[]) AS chains;
    DELETE FROM "public"."queuert_blocker" WHERE chain_id = ANY (v_chains);
    DELETE FROM "public"."queuert_blocker" WHERE job_id = ANY (v_jobs);
    DELETE FROM "public"."queuert_key" WHERE chain_id = ANY (v_chains);
    PERFORM "public"."queuert_land"(v_jobs);
    DELETE FROM "public"."queuert_job" WHERE id = ANY (v_jobs);
END $body$;
INSERT INTO "public"."queuert_schema_version" (version) VALUES (6);
