-- Ending jobs, putting them back, storing their continuations, releasing dependents.

-- Delete all but the last attempts of jobs that are stored. Primary key.
CREATE OR REPLACE FUNCTION {trim_attempts}(p_ids uuid[]) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    DELETE FROM {attempt} AS a USING unnest(p_ids) AS asked (id)
    WHERE a.job_id = asked.id AND a.ended_at < (
        SELECT k.ended_at FROM {attempt} AS k WHERE k.job_id = asked.id ORDER BY k.ended_at DESC OFFSET {attempts_kept} - 1 LIMIT 1
    );
END $body$;

-- Delete the chains that these jobs have just ended, or are about to end, unless jobs have them as a
-- blocker, or they were started with a key. Returns the jobs of them that are gone. The caller has
-- locked the claims. Primary keys, index job_chain.
CREATE OR REPLACE FUNCTION {discard}(p_ids uuid[]) RETURNS uuid[] LANGUAGE plpgsql AS $body$
DECLARE
    v_gone uuid[];
    v_longer uuid[];
    v_waited uuid[];
    v_tried uuid[];
    v_before uuid[];
    v_before_waited uuid[];
BEGIN
    WITH gone AS (
        DELETE FROM {job} AS j USING unnest(p_ids) AS asked (id)
        WHERE j.id = asked.id AND j.dependents = 0 AND CASE WHEN j.chain_index = 0 THEN j.dedup_key IS NULL
            ELSE NOT EXISTS (SELECT FROM {job} AS f WHERE f.id = j.chain_id AND f.dedup_key IS NOT NULL OFFSET 0) END
        RETURNING j.id, j.chain_id, j.chain_index, j.blocker_count, j.attempt > 0 OR j.last_error IS NOT NULL AS tried
    )
    SELECT array_agg(gone.id), array_agg(gone.chain_id) FILTER (WHERE gone.chain_index > 0),
        array_agg(gone.id) FILTER (WHERE gone.blocker_count > 0), array_agg(gone.id) FILTER (WHERE gone.tried)
    INTO v_gone, v_longer, v_waited, v_tried FROM gone;
    IF v_longer IS NOT NULL THEN
        WITH gone AS (DELETE FROM {job} AS j WHERE j.chain_id = ANY (v_longer) RETURNING j.id, j.blocker_count)
        SELECT array_agg(gone.id), array_agg(gone.id) FILTER (WHERE gone.blocker_count > 0)
        INTO v_before, v_before_waited FROM gone;
    END IF;
    IF v_waited IS NOT NULL OR v_before_waited IS NOT NULL THEN
        DELETE FROM {blocker} AS b WHERE b.job_id = ANY (v_waited || v_before_waited);
    END IF;
    IF v_tried IS NOT NULL OR v_before IS NOT NULL THEN
        DELETE FROM {attempt} AS a WHERE a.job_id = ANY (v_tried || v_before);
    END IF;
    RETURN coalesce(v_gone, '{}');
END $body$;

-- The common settlement, made cheap: claims of one worker that end their chains, or continue them
-- with a job that is due now and has no blockers. `p_texts` has the outputs or, where there is a
-- next job, its input. `p_most`: how many edges of completed chains are counted down at most.
-- `p_discard`: which of the chains are deleted, rather than completed (see `discard`); null: none.
-- Returns rows of kind 'lost' (positions of claims that are over), 'unblocked' and 'more' (edges are
-- left for `unblock_more`); or one row of kind 'exists', and then nothing is written: one of the
-- next ids is stored already. All next ids must be different. Locks: rows of `running`, then of
-- `job`, both by id, because the ids are in ascending order (primary keys); then dependents by id.
CREATE OR REPLACE FUNCTION {complete}(
    p_ids uuid[], p_tokens bigint[], p_texts text[], p_worker text,
    p_next uuid[], p_next_types text[], p_next_priorities integer[], p_next_traces text[], p_next_chain_traces text[],
    p_most integer, p_discard boolean[], p_statistics boolean, p_next_lanes text[]
) RETURNS TABLE (kind text, place integer, id text, type_name text, ready boolean) LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_places integer[];
    v_ids uuid[];
    v_started timestamptz[];
    v_kinds text[];
    v_texts text[] := p_texts;
    v_next uuid[] := p_next;
    v_types text[] := p_next_types;
    v_priorities integer[] := p_next_priorities;
    v_traces text[] := p_next_traces;
    v_chain_traces text[] := p_next_chain_traces;
    v_lanes text[] := p_next_lanes;
    v_completed uuid[];
    v_edges bigint;
    v_wanted uuid[];
    v_gone uuid[];
BEGIN
    -- Row by row in the order of the ids, whatever the plan: each is looked up and locked in its
    -- own subquery.
    SELECT array_agg(asked.n::integer), array_agg(r.job_id), array_agg(r.started_at), array_agg(r.type_name)
    INTO v_places, v_ids, v_started, v_kinds
    FROM unnest(p_ids, p_tokens) WITH ORDINALITY AS asked (id, token, n)
    CROSS JOIN LATERAL (
        SELECT e.job_id, e.started_at, e.type_name FROM {running} AS e WHERE e.job_id = asked.id AND e.token = asked.token FOR UPDATE
    ) AS r;
    IF v_ids IS NULL OR cardinality(v_ids) < cardinality(p_ids) THEN
        RETURN QUERY SELECT 'lost', n, NULL, NULL, NULL::boolean FROM generate_series(1, cardinality(p_ids)) AS n
        WHERE n <> ALL (coalesce(v_places, '{}'));
        IF v_ids IS NULL THEN
            RETURN;
        END IF;
        SELECT array_agg(p_texts[n]), array_agg(p_next[n]), array_agg(p_next_types[n]), array_agg(p_next_priorities[n]),
            array_agg(p_next_traces[n]), array_agg(p_next_chain_traces[n]), array_agg(p_next_lanes[n])
        INTO v_texts, v_next, v_types, v_priorities, v_traces, v_chain_traces, v_lanes FROM unnest(v_places) AS n;
    END IF;
    IF cardinality(p_next) > 0 THEN
        PERFORM FROM {job} WHERE id = ANY (v_next) LIMIT 1;
        IF FOUND THEN
            RETURN QUERY SELECT 'exists', NULL::integer, NULL, NULL, NULL::boolean;
            RETURN;
        END IF;
    END IF;
    v_now := {clock};
    IF p_discard IS NOT NULL THEN
        v_wanted := array(SELECT p_ids[n] FROM unnest(v_places) AS n WHERE p_discard[n]);
        v_gone := {discard}(v_wanted);
        IF cardinality(v_gone) > 0 THEN
            WITH ended AS (DELETE FROM {running} AS r WHERE r.job_id = ANY (v_gone) RETURNING r.type_name, r.started_at)
            INSERT INTO {tally} (at, type_name, what, number, since)
            SELECT v_now, e.type_name, 'completed', count(*), array_agg(e.started_at) FROM ended AS e WHERE p_statistics GROUP BY e.type_name;
            IF cardinality(v_gone) = cardinality(v_ids) THEN
                RETURN;
            END IF;
            -- Almost always all of them are gone: then each id need not be looked for among these.
            SELECT array_agg(asked.n::integer), array_agg(asked.id), array_agg(asked.started_at)
            INTO v_places, v_ids, v_started
            FROM unnest(v_places, v_ids, v_started) AS asked (n, id, started_at)
            WHERE NOT p_discard[asked.n] OR (cardinality(v_gone) < cardinality(v_wanted) AND asked.id <> ALL (v_gone));
            SELECT array_agg(p_texts[n]), array_agg(p_next[n]), array_agg(p_next_types[n]), array_agg(p_next_priorities[n]),
                array_agg(p_next_traces[n]), array_agg(p_next_chain_traces[n]), array_agg(p_next_lanes[n])
            INTO v_texts, v_next, v_types, v_priorities, v_traces, v_chain_traces, v_lanes FROM unnest(v_places) AS n;
        END IF;
    END IF;
    IF p_statistics AND v_kinds[1] = ALL (v_kinds) THEN
        DELETE FROM {running} WHERE job_id = ANY (v_ids);
        INSERT INTO {tally} (at, type_name, what, number, since) VALUES (v_now, v_kinds[1], 'completed', cardinality(v_ids), v_started);
    ELSIF p_statistics THEN
        WITH ended AS (DELETE FROM {running} AS r WHERE r.job_id = ANY (v_ids) RETURNING r.type_name, r.started_at)
        INSERT INTO {tally} (at, type_name, what, number, since)
        SELECT v_now, e.type_name, 'completed', count(*), array_agg(e.started_at) FROM ended AS e GROUP BY e.type_name;
    ELSE
        DELETE FROM {running} WHERE job_id = ANY (v_ids);
    END IF;
    IF cardinality(p_next) = 0 THEN
        WITH ended AS (
            UPDATE {job} AS j SET
                status = 'completed',
                output = x.output::json,
                completed_at = v_now,
                completed_by = p_worker,
                attempt = j.attempt + 1,
                last_attempt_at = x.started_at,
                last_error = NULL
            FROM unnest(v_ids, v_started, v_texts) AS x (id, started_at, output)
            WHERE j.id = x.id
            RETURNING j.chain_id, j.dependents
        )
        SELECT array_agg(ended.chain_id), sum(ended.dependents) INTO v_completed, v_edges FROM ended WHERE ended.dependents > 0;
    ELSE
        -- A next job inherits the dependents of the job before it.
        WITH ended AS (
            UPDATE {job} AS j SET
                status = 'completed',
                output = CASE WHEN x.next IS NULL THEN x.text::json END,
                continued_to = x.next,
                completed_at = v_now,
                completed_by = p_worker,
                attempt = j.attempt + 1,
                last_attempt_at = x.started_at,
                last_error = NULL
            FROM unnest(v_ids, v_started, v_texts, v_next, v_types, v_priorities, v_traces, v_chain_traces, v_lanes)
                AS x (id, started_at, text, next, next_type, next_priority, next_trace, next_chain_trace, next_lane)
            WHERE j.id = x.id
            RETURNING j.chain_id, j.chain_type, j.chain_index, j.dependents, x.*
        ), stored AS (
            INSERT INTO {job} (
                id, type_name, chain_id, chain_type, chain_index, input, status, priority, created_at, scheduled_at, dependents,
                trace_context, chain_trace_context, lane
            )
            SELECT e.next, e.next_type, e.chain_id, e.chain_type, e.chain_index + 1, e.text::json, 'pending', e.next_priority, v_now, v_now,
                e.dependents, e.next_trace, e.next_chain_trace, e.next_lane
            FROM ended AS e WHERE e.next IS NOT NULL
        )
        SELECT array_agg(ended.chain_id), sum(ended.dependents) INTO v_completed, v_edges
        FROM ended WHERE ended.next IS NULL AND ended.dependents > 0;
        INSERT INTO {ready} (type_name, priority, scheduled_at, id)
        SELECT n.type_name, n.priority, v_now, n.id FROM unnest(v_next, v_types, v_priorities, v_lanes) AS n (id, type_name, priority, lane)
        WHERE n.id IS NOT NULL AND n.lane IS NULL;
        IF cardinality(p_next_lanes) > 0 THEN
            INSERT INTO {line} (lane, priority, scheduled_at, id, type_name)
            SELECT n.lane, n.priority, v_now, n.id, n.type_name
            FROM unnest(v_next, v_types, v_priorities, v_lanes) AS n (id, type_name, priority, lane)
            WHERE n.id IS NOT NULL AND n.lane IS NOT NULL;
        END IF;
    END IF;
    IF v_edges <= p_most THEN
        RETURN QUERY SELECT 'unblocked', NULL::integer, u.job_id::text, u.type_name, u.ready FROM {unblock}(v_completed, v_now) AS u;
    ELSIF v_edges > p_most THEN
        RETURN QUERY SELECT 'unblocked', NULL::integer, u.job_id::text, u.type_name, u.ready
        FROM {unblock_some}(v_completed, '{}', p_most, v_now) AS u;
        RETURN QUERY SELECT 'more', NULL::integer, NULL, NULL, NULL::boolean
        WHERE EXISTS (SELECT FROM {unblocking} WHERE chain_id = ANY (v_completed));
    END IF;
END $body$;

-- `complete` for one claim, in one message with COMMIT, so that its answer is not read. Raises
-- `QU001` if there is an answer: the claim is lost, the next id exists, or dependents were freed. The
-- caller then goes back to its savepoint, and asks again. Locks: as `complete`.
CREATE OR REPLACE FUNCTION {complete_last}(
    p_id uuid, p_token bigint, p_text text, p_worker text, p_next uuid, p_next_type text, p_next_priority integer,
    p_next_trace text, p_next_chain_trace text, p_discard boolean, p_statistics boolean, p_next_lane text
) RETURNS void LANGUAGE plpgsql {steady} AS $body$
BEGIN
    IF p_next IS NULL THEN
        PERFORM FROM {complete}(ARRAY[p_id], ARRAY[p_token], ARRAY[p_text], p_worker, '{}', '{}', '{}', '{}', '{}', 0,
            CASE WHEN p_discard THEN ARRAY[true] END, p_statistics, '{}');
    ELSE
        PERFORM FROM {complete}(ARRAY[p_id], ARRAY[p_token], ARRAY[p_text], p_worker, ARRAY[p_next], ARRAY[p_next_type],
            ARRAY[p_next_priority], ARRAY[p_next_trace], ARRAY[p_next_chain_trace], 0, NULL,
            p_statistics, ARRAY[p_next_lane]);
    END IF;
    IF FOUND THEN
        RAISE 'queuert: this settlement has an answer' USING ERRCODE = 'QU001';
    END IF;
END $body$;

-- The same for the most common end: an output, and the chain is kept. Three statements, each for one
-- row by its primary key, without arrays: half the time of `complete`. Such plans need one setting of
-- STEADY only (see `hold`). Locks: the row of `running`, then that of `job`.
CREATE OR REPLACE FUNCTION {complete_one}(p_id uuid, p_token bigint, p_output text, p_worker text, p_statistics boolean)
RETURNS void LANGUAGE plpgsql SET enable_seqscan TO off AS $body$
DECLARE
    v_now timestamptz;
    v_kind text;
    v_started timestamptz;
    v_dependents integer;
BEGIN
    DELETE FROM {running} WHERE job_id = p_id AND token = p_token RETURNING type_name, started_at INTO v_kind, v_started;
    IF FOUND THEN
        v_now := {clock};
        UPDATE {job} SET
            status = 'completed',
            output = p_output::json,
            completed_at = v_now,
            completed_by = p_worker,
            attempt = attempt + 1,
            last_attempt_at = v_started,
            last_error = NULL
        WHERE id = p_id RETURNING dependents INTO v_dependents;
        IF v_dependents = 0 THEN
            IF p_statistics THEN
                INSERT INTO {tally} (at, type_name, what, number, since) VALUES (v_now, v_kind, 'completed', 1, ARRAY[v_started]);
            END IF;
            RETURN;
        END IF;
    END IF;
    RAISE 'queuert: this settlement has an answer' USING ERRCODE = 'QU001';
END $body$;

-- Hold what is to be settled: which settlements hold their job, since when it runs, and its worker, by the
-- position of the settlement; and the ids of these jobs. With a token: rows of `running` by id (primary key); the
-- same job twice in one call: only the first counts. Without a token (`loose`): any job that has not ended. The
-- caller has usually locked it before (`lock_jobs`).
CREATE OR REPLACE FUNCTION {hold_claims}(
    p_ids uuid[], p_tokens bigint[],
    OUT ids uuid[], OUT held boolean[], OUT started timestamptz[], OUT holders text[], OUT loose uuid[]
) LANGUAGE plpgsql AS $body$
DECLARE
    v_item record;
    v_last uuid;
BEGIN
    ids := '{}';
    loose := '{}';
    held := array_fill(false, ARRAY[cardinality(p_ids)]);
    started := array_fill(NULL::timestamptz, ARRAY[cardinality(p_ids)]);
    holders := array_fill(NULL::text, ARRAY[cardinality(p_ids)]);
    FOR v_item IN
        SELECT asked.n::integer AS n, r.job_id AS id, r.started_at, r.worker
        FROM unnest(p_ids, p_tokens) WITH ORDINALITY AS asked (id, token, n)
        JOIN {running} AS r ON r.job_id = asked.id AND r.token = asked.token
        ORDER BY r.job_id, asked.n FOR UPDATE OF r
    LOOP
        CONTINUE WHEN v_item.id = v_last;
        v_last := v_item.id;
        ids := ids || v_item.id;
        held[v_item.n] := true;
        started[v_item.n] := v_item.started_at;
        holders[v_item.n] := v_item.worker;
    END LOOP;
    IF array_position(p_tokens, NULL) IS NULL THEN
        RETURN;
    END IF;
    loose := array(
        SELECT DISTINCT asked.id FROM unnest(p_ids, p_tokens) AS asked (id, token)
        WHERE asked.token IS NULL AND asked.id <> ALL (ids)
    );
    PERFORM {lock_jobs}(loose);
    FOR v_item IN
        SELECT min(asked.n)::integer AS n, j.id, r.started_at, r.worker
        FROM unnest(p_ids, p_tokens) WITH ORDINALITY AS asked (id, token, n)
        JOIN {job} AS j ON j.id = asked.id AND j.status IN ('blocked', 'pending')
        LEFT JOIN {running} AS r ON r.job_id = j.id
        WHERE asked.token IS NULL AND asked.id = ANY (loose)
        GROUP BY j.id, r.started_at, r.worker
    LOOP
        ids := ids || v_item.id;
        held[v_item.n] := true;
        started[v_item.n] := v_item.started_at;
        holders[v_item.n] := v_item.worker;
    END LOOP;
END $body$;

-- The edges of the continuations that are stored, in their order. Locks nothing. Primary key.
CREATE OR REPLACE FUNCTION {next_edges}(
    p_settled uuid[], p_positions integer[], p_next uuid[], p_held boolean[],
    p_places integer[], p_chains uuid[], p_types text[], p_within integer[], p_traces text[],
    OUT jobs uuid[], OUT own uuid[], OUT places integer[], OUT chains uuid[], OUT types text[], OUT within integer[], OUT traces text[]
) LANGUAGE plpgsql AS $body$
BEGIN
    SELECT array_agg(p_next[edge.place] ORDER BY edge.n), array_agg(j.chain_id ORDER BY edge.n), array_agg(edge.place ORDER BY edge.n),
        array_agg(edge.chain_id ORDER BY edge.n), array_agg(edge.type_name ORDER BY edge.n),
        -- This call continues the other chain, unless its claim is lost: then its current job stays.
        array_agg(CASE WHEN p_held[edge.within] THEN edge.within END ORDER BY edge.n), array_agg(edge.trace ORDER BY edge.n)
    INTO jobs, own, places, chains, types, within, traces
    FROM unnest(p_places, p_chains, p_types, p_within, p_traces) WITH ORDINALITY AS edge (place, chain_id, type_name, within, trace, n)
    JOIN {job} AS j ON j.id = p_settled[p_positions[edge.place]]
    WHERE p_held[edge.place];
END $body$;

-- End or put back the jobs that are held, in one statement, with what is noted of it: failed attempts, and
-- statistics. Arrays are by the position of the settlement. Returns the chains that were completed and have
-- dependents (`completed`; `by_hand`: without a token), the number of their edges, and the jobs that were put
-- back. The caller has locked the jobs. Primary keys.
CREATE OR REPLACE FUNCTION {end_jobs}(
    p_ids uuid[], p_held boolean[], p_started timestamptz[], p_next uuid[], p_statuses text[], p_outputs text[], p_errors text[],
    p_at timestamptz[], p_after double precision[], p_uncounted boolean[], p_give_back boolean[], p_workers text[], p_tokens bigint[],
    p_holders text[], p_codes text[], p_messages text[], p_statistics boolean, p_now timestamptz,
    OUT completed uuid[], OUT by_hand uuid[], OUT edges bigint, OUT put_back uuid[]
) LANGUAGE plpgsql AS $body$
DECLARE
    v_failed uuid[];
BEGIN
    WITH ended AS (
        UPDATE {job} AS j SET
            status = x.status,
            resting = CASE WHEN x.status IN ('failed', 'cancelled', 'expired') THEN x.status END,
            output = x.output::json,
            continued_to = x.next,
            completed_at = CASE WHEN x.status <> 'pending' THEN p_now END,
            completed_by = CASE WHEN x.status <> 'pending' THEN x.worker END,
            losses = least(j.losses, j.attempt),
            attempt = j.attempt + (x.started_at IS NOT NULL AND NOT (x.uncounted OR x.give_back))::integer,
            last_attempt_at = CASE WHEN x.give_back THEN j.last_attempt_at ELSE coalesce(x.started_at, j.last_attempt_at) END,
            last_error = CASE WHEN x.status <> 'completed' THEN coalesce(x.error::json, j.last_error) END,
            scheduled_at = CASE WHEN x.status = 'pending' AND NOT x.give_back
                THEN greatest(p_now, coalesce(x.at_time, p_now + make_interval(secs => coalesce(x.after_time, 0))))
                ELSE j.scheduled_at END
        FROM unnest(p_ids, p_held, p_started, p_next, p_statuses, p_outputs, p_errors, p_at, p_after, p_uncounted, p_give_back,
            p_workers, p_tokens, p_holders, p_codes, p_messages)
            AS x (id, held, started_at, next, status, output, error, at_time, after_time, uncounted, give_back, worker, token, holder,
                code, message)
        WHERE x.held AND j.id = x.id
        RETURNING j.id, j.type_name, j.chain_id, j.status, j.dependents, j.scheduled_at, x.token, j.attempt, x.started_at, x.holder, x.code,
            x.message, x.give_back,
            j.status = 'completed' AND j.continued_to IS NULL AND j.dependents > 0 AS frees,
            x.error IS NOT NULL AND j.status IN ('pending', 'failed') AND x.started_at IS NOT NULL
                AND NOT (x.uncounted OR x.give_back) AS fails
    ), noted AS (
        INSERT INTO {attempt} (job_id, ended_at, number, begun_at, worker, outcome, code, message)
        SELECT e.id, p_now, e.attempt, e.started_at, e.holder, 'failed', e.code, e.message
        FROM ended AS e WHERE e.fails ON CONFLICT DO NOTHING
    ), counted AS (
        -- A claim that is given back is as if it had not been: its job is due as before.
        INSERT INTO {tally} (at, type_name, what, number, since)
        SELECT e.started_at, e.type_name, 'begun', -count(*), array_agg(e.scheduled_at)
        FROM ended AS e WHERE p_statistics AND e.give_back GROUP BY e.started_at, e.type_name
        UNION ALL
        SELECT p_now, e.type_name, CASE e.status WHEN 'pending' THEN 'retried' ELSE e.status END, count(*),
            coalesce(array_agg(e.started_at) FILTER (WHERE e.started_at IS NOT NULL), '{}')
        FROM ended AS e WHERE p_statistics AND NOT e.give_back GROUP BY e.type_name, e.status
    )
    SELECT
        array_agg(ended.chain_id) FILTER (WHERE ended.frees AND ended.token IS NOT NULL),
        array_agg(ended.chain_id) FILTER (WHERE ended.frees AND ended.token IS NULL),
        coalesce(sum(ended.dependents) FILTER (WHERE ended.frees AND ended.token IS NOT NULL), 0),
        array_agg(ended.id) FILTER (WHERE ended.status = 'pending'),
        array_agg(ended.id) FILTER (WHERE ended.fails)
    INTO completed, by_hand, edges, put_back, v_failed FROM ended;
    IF v_failed IS NOT NULL THEN
        PERFORM {trim_attempts}(v_failed);
    END IF;
END $body$;

-- Store the continuations that are held, with their edges. They inherit the dependents of the jobs before them.
-- The caller has locked the current jobs of the chains that they wait for. Primary keys, index job_chain.
CREATE OR REPLACE FUNCTION {store_next}(
    p_settled uuid[], p_positions integer[], p_ids uuid[], p_types text[], p_inputs text[], p_priorities integer[],
    p_at timestamptz[], p_after double precision[], p_deadline_at timestamptz[], p_deadline_after double precision[],
    p_traces text[], p_chain_traces text[], p_held boolean[], p_lanes text[], p_weights double precision[],
    p_edge_jobs uuid[], p_edge_places integer[], p_edge_chains uuid[], p_edge_within integer[], p_edge_traces text[], p_now timestamptz
) RETURNS TABLE (id uuid, status text, ready boolean) LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    v_edges integer[];
    v_waiting integer[];
    v_dependents integer[];
BEGIN
    IF p_edge_jobs IS NOT NULL THEN
        SELECT counted.o_edges, counted.o_waiting, counted.o_dependents INTO v_edges, v_waiting, v_dependents
        FROM {count_edges}(p_edge_places, p_edge_chains, p_edge_within, cardinality(p_ids)) AS counted;
        PERFORM {add_edges}(p_edge_jobs, p_edge_chains, p_edge_within, p_edge_traces);
    END IF;
    RETURN QUERY
    WITH next AS (
        SELECT array_agg(j.chain_id ORDER BY n.n) AS chains, array_agg(j.chain_type ORDER BY n.n) AS chain_types,
            array_agg(j.chain_index + 1 ORDER BY n.n) AS indexes,
            array_agg(j.dependents + coalesce(v_dependents[n.n], 0) ORDER BY n.n) AS dependents
        FROM unnest(p_positions) WITH ORDINALITY AS n (place, n) LEFT JOIN {job} AS j ON j.id = p_settled[n.place]
    )
    SELECT made.id, made.status, made.ready
    FROM next, {insert_jobs}(
        p_ids, p_types, next.chains, next.chain_types, next.indexes, p_inputs, p_priorities, p_at, p_after, p_deadline_at,
        p_deadline_after, '{}', p_traces, p_chain_traces, p_held, v_edges, v_waiting, next.dependents, p_now, p_lanes, p_weights
    ) AS made;
END $body$;

-- Returns rows of kind 'held' (position), 'created' (the continuation), 'unblocked' and 'more' (see
-- `complete`; settlements without a token unblock all dependents); or one row of kind 'problem', and
-- then nothing is written. Edges name the position of their job among the
-- continuations, and the position of the continuation that becomes their chain's current job by
-- this call. Locks: rows of `running` by id; jobs, and the current jobs of chains that
-- continuations wait for, by id; then dependents by id. Primary keys and job_chain.
CREATE OR REPLACE FUNCTION {settle}(
    p_ids text[], p_tokens bigint[], p_statuses text[], p_outputs text[], p_errors text[], p_at timestamptz[],
    p_after double precision[], p_uncounted boolean[], p_give_back boolean[], p_workers text[],
    p_next_positions integer[], p_next_ids text[], p_next_types text[], p_next_inputs text[], p_next_priorities integer[],
    p_next_at timestamptz[], p_next_after double precision[], p_next_deadline_at timestamptz[],
    p_next_deadline_after double precision[], p_next_traces text[], p_next_chain_traces text[],
    p_edge_places integer[], p_edge_chains text[], p_edge_types text[], p_edge_within integer[], p_edge_traces text[],
    p_most integer, p_discard boolean[], p_codes text[], p_messages text[], p_statistics boolean, p_next_lanes text[],
    p_closes double precision[], p_next_weights double precision[]
) RETURNS TABLE (kind text, place integer, id text, type_name text, status text, ready boolean, problem text)
LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_all uuid[] := p_ids::uuid[];
    v_hold record;
    -- By the position of the settlement, and by that of the continuation.
    v_held boolean[];
    v_next uuid[];
    v_next_ids uuid[] := p_next_ids::uuid[];
    v_next_held boolean[] := '{}';
    v_edge_jobs uuid[];
    v_edge_own uuid[];
    v_edge_places integer[];
    v_edge_chains uuid[];
    v_edge_types text[];
    v_edge_within integer[];
    v_edge_traces text[];
    v_before integer;
    v_taken record;
    v_problem jsonb;
    v_ended record;
BEGIN
    v_hold := {hold_claims}(v_all, p_tokens);
    IF cardinality(v_hold.ids) = 0 THEN
        RETURN;
    END IF;
    v_held := v_hold.held;
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
        SELECT e.jobs, e.own, e.places, e.chains, e.types, e.within, e.traces
        INTO v_edge_jobs, v_edge_own, v_edge_places, v_edge_chains, v_edge_types, v_edge_within, v_edge_traces
        FROM {next_edges}(
            v_all, p_next_positions, v_next_ids, v_next_held, p_edge_places, p_edge_chains::uuid[], p_edge_types, p_edge_within, p_edge_traces
        ) AS e;
    END IF;
    IF v_edge_jobs IS NOT NULL THEN
        PERFORM {lock_current}(array(SELECT DISTINCT edge FROM unnest(v_edge_chains) AS edge), v_hold.ids);
    ELSE
        PERFORM FROM {job} WHERE id = ANY (v_hold.ids) ORDER BY status = 'blocked', id FOR NO KEY UPDATE;
    END IF;
    v_now := {clock};
    IF cardinality(p_next_ids) > 0 THEN
        v_taken := {taken_id}(v_next_ids, v_next_held);
        v_problem := v_taken.problem;
        IF v_edge_jobs IS NOT NULL THEN
            -- The first continuation that is wrong decides. Edges are in the order of continuations.
            v_before := (SELECT count(*) FROM unnest(v_edge_places) AS edge (place) WHERE v_taken.place IS NULL OR edge.place < v_taken.place);
            v_problem := coalesce(
                {check_edges}(v_edge_jobs[:v_before], v_edge_own[:v_before], v_edge_chains[:v_before], v_edge_types[:v_before], '{}'),
                v_problem
            );
        END IF;
        IF v_problem IS NOT NULL THEN
            RETURN QUERY SELECT 'problem', NULL::integer, NULL::text, NULL::text, NULL::text, NULL::boolean, v_problem::text;
            RETURN;
        END IF;
    END IF;

    IF cardinality(v_hold.loose) > 0 THEN
        PERFORM {dequeue}(v_hold.ids);
    ELSE
        DELETE FROM {running} WHERE job_id = ANY (v_hold.ids);
    END IF;
    IF array_remove(p_closes, NULL) <> '{}' THEN
        INSERT INTO {closing} (lane, until)
        SELECT j.lane, v_now + make_interval(secs => asked.seconds)
        FROM unnest(v_all, v_held, p_closes) AS asked (id, held, seconds) JOIN {job} AS j ON j.id = asked.id
        WHERE asked.held AND asked.seconds IS NOT NULL AND j.lane IS NOT NULL;
    END IF;
    v_ended := {end_jobs}(
        v_all, v_held, v_hold.started, v_next, p_statuses, p_outputs, p_errors, p_at, p_after, p_uncounted, p_give_back,
        p_workers, p_tokens, v_hold.holders, p_codes, p_messages, p_statistics, v_now
    );
    IF v_ended.put_back IS NOT NULL THEN
        PERFORM {enqueue}(v_ended.put_back, v_now);
    END IF;
    kind := 'held';
    FOR v_row IN 1..cardinality(p_ids) LOOP
        IF v_held[v_row] THEN
            place := v_row;
            RETURN NEXT;
        END IF;
    END LOOP;
    IF v_ended.edges > p_most THEN
        RETURN QUERY SELECT 'unblocked', NULL::integer, u.job_id::text, u.type_name, NULL::text, u.ready, NULL::text
        FROM {unblock_some}(v_ended.completed, coalesce(v_ended.by_hand, '{}'), p_most, v_now) AS u;
        RETURN QUERY SELECT 'more', NULL::integer, NULL::text, NULL::text, NULL::text, NULL::boolean, NULL::text
        WHERE EXISTS (SELECT FROM {unblocking} WHERE chain_id = ANY (v_ended.completed));
    ELSIF v_ended.completed IS NOT NULL OR v_ended.by_hand IS NOT NULL THEN
        RETURN QUERY SELECT 'unblocked', NULL::integer, u.job_id::text, u.type_name, NULL::text, u.ready, NULL::text
        FROM {unblock}(v_ended.completed || v_ended.by_hand, v_now) AS u;
    END IF;
    IF cardinality(p_next_ids) > 0 THEN
        RETURN QUERY SELECT 'created', NULL::integer, made.id::text, NULL::text, made.status, made.ready, NULL::text
        FROM {store_next}(
            v_all, p_next_positions, v_next_ids, p_next_types, p_next_inputs, p_next_priorities, p_next_at, p_next_after,
            p_next_deadline_at, p_next_deadline_after, p_next_traces, p_next_chain_traces, v_next_held, p_next_lanes, p_next_weights,
            v_edge_jobs, v_edge_places, v_edge_chains, v_edge_within, v_edge_traces, v_now
        ) AS made;
    END IF;
    IF array_position(p_discard, true) IS NOT NULL THEN
        PERFORM {discard}(array(
            SELECT asked.id FROM unnest(v_all, v_held, p_discard, p_statuses) AS asked (id, held, discard, status)
            WHERE asked.held AND asked.discard AND asked.status = 'completed'
        ));
    END IF;
END $body$;
