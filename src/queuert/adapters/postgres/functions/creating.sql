-- Storing jobs. Locks: the in-flight rows of chains that are found under a key before they begin,
-- by id; rows of `key` by type and key; then the rows of those chains and the current jobs of
-- blocking chains by id.

-- Insert the jobs for which `p_store` is true. Their edges were counted by the caller (NULL: no
-- edges).
CREATE OR REPLACE FUNCTION {insert_jobs}(
    p_ids uuid[], p_types text[], p_chains uuid[], p_chain_types text[], p_indexes integer[], p_inputs text[],
    p_priorities integer[], p_at timestamptz[], p_after double precision[], p_deadline_at timestamptz[],
    p_deadline_after double precision[], p_keys text[], p_traces text[], p_chain_traces text[],
    p_store boolean[], p_edges integer[], p_waiting integer[], p_dependents integer[], p_now timestamptz, p_lanes text[],
    p_weights double precision[]
) RETURNS TABLE (id uuid, status text, ready boolean) LANGUAGE plpgsql AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH new AS (
        INSERT INTO {job} AS j (
            id, type_name, chain_id, chain_type, chain_index, input, status, resting, priority, created_at, scheduled_at,
            deadline, dedup_key, blocker_count, blockers_left, dependents, trace_context, chain_trace_context, lane, weight
        )
        SELECT
            n.id, n.type_name, n.chain_id, n.chain_type, n.chain_index, n.input::json,
            CASE WHEN n.waiting > 0 THEN 'blocked' ELSE 'pending' END, CASE WHEN n.waiting > 0 THEN 'blocked' END,
            -- A time in the past is now: the job does not overtake those that are ready.
            n.priority, p_now, greatest(p_now, coalesce(n.at_time, p_now + make_interval(secs => coalesce(n.after_time, 0)))),
            coalesce(n.deadline_at, p_now + make_interval(secs => n.deadline_after)), n.key,
            coalesce(n.edges, 0), coalesce(n.waiting, 0), coalesce(n.dependents, 0), n.trace, n.chain_trace, n.lane, n.weight
        FROM unnest(
            p_ids, p_types, p_chains, p_chain_types, p_indexes, p_inputs, p_priorities, p_at, p_after, p_deadline_at,
            p_deadline_after, p_keys, p_traces, p_chain_traces, p_store, p_edges, p_waiting, p_dependents, p_lanes, p_weights
        ) AS n (
            id, type_name, chain_id, chain_type, chain_index, input, priority, at_time, after_time, deadline_at,
            deadline_after, key, trace, chain_trace, store, edges, waiting, dependents, lane, weight
        )
        WHERE n.store
        RETURNING j.id, j.status, j.type_name, j.priority, j.scheduled_at, j.lane
    ), now_due AS (
        INSERT INTO {ready} (type_name, priority, scheduled_at, id)
        SELECT new.type_name, new.priority, new.scheduled_at, new.id FROM new
        WHERE new.status = 'pending' AND new.scheduled_at <= p_now AND new.lane IS NULL
    ), in_line AS (
        INSERT INTO {line} (lane, priority, scheduled_at, id, type_name)
        SELECT new.lane, new.priority, new.scheduled_at, new.id, new.type_name FROM new
        WHERE new.status = 'pending' AND new.scheduled_at <= p_now AND new.lane IS NOT NULL
    ), due_later AS (
        INSERT INTO {later} (type_name, scheduled_at, id, priority, lane)
        SELECT new.type_name, new.scheduled_at, new.id, new.priority, new.lane FROM new
        WHERE new.status = 'pending' AND new.scheduled_at > p_now
    )
    SELECT new.id, new.status, new.status = 'pending' AND new.scheduled_at <= p_now FROM new;
END $body$;

-- Lock the in-flight row of a job that has not begun, so that it does not begin before the
-- transaction ends. False: it has begun, is blocked, has ended or was deleted. `p_mode`: 'share'
-- (others may do the same), 'alone' (to change it), or 'free' ('alone', but false if another
-- transaction has locked it). Primary keys. It never waits for a claim that is held: a job that is
-- in `running` has begun.
CREATE OR REPLACE FUNCTION {lock_waiting}(p_id uuid, p_mode text) RETURNS boolean LANGUAGE plpgsql AS $body$
DECLARE
    v_job record;
BEGIN
    FOR v_try IN 1..1000 LOOP
        SELECT type_name, priority, scheduled_at, lane INTO v_job FROM {job}
        WHERE id = p_id AND status = 'pending' AND last_attempt_at IS NULL;
        IF NOT FOUND OR EXISTS (SELECT FROM {running} WHERE job_id = p_id) THEN
            RETURN false;
        END IF;
        IF v_job.lane IS NOT NULL THEN
            IF p_mode = 'share' THEN
                PERFORM FROM {line} WHERE lane = v_job.lane AND priority = v_job.priority
                    AND scheduled_at = v_job.scheduled_at AND id = p_id FOR SHARE;
            ELSIF p_mode = 'alone' THEN
                PERFORM FROM {line} WHERE lane = v_job.lane AND priority = v_job.priority
                    AND scheduled_at = v_job.scheduled_at AND id = p_id FOR UPDATE;
            ELSE
                PERFORM FROM {line} WHERE lane = v_job.lane AND priority = v_job.priority
                    AND scheduled_at = v_job.scheduled_at AND id = p_id FOR UPDATE SKIP LOCKED;
            END IF;
        ELSIF p_mode = 'share' THEN
            PERFORM FROM {ready} WHERE type_name = v_job.type_name AND priority = v_job.priority
                AND scheduled_at = v_job.scheduled_at AND id = p_id FOR SHARE;
        ELSIF p_mode = 'alone' THEN
            PERFORM FROM {ready} WHERE type_name = v_job.type_name AND priority = v_job.priority
                AND scheduled_at = v_job.scheduled_at AND id = p_id FOR UPDATE;
        ELSE
            PERFORM FROM {ready} WHERE type_name = v_job.type_name AND priority = v_job.priority
                AND scheduled_at = v_job.scheduled_at AND id = p_id FOR UPDATE SKIP LOCKED;
        END IF;
        IF FOUND THEN
            RETURN true;
        END IF;
        IF p_mode = 'share' THEN
            PERFORM FROM {later} WHERE type_name = v_job.type_name AND scheduled_at = v_job.scheduled_at
                AND id = p_id FOR SHARE;
        ELSIF p_mode = 'alone' THEN
            PERFORM FROM {later} WHERE type_name = v_job.type_name AND scheduled_at = v_job.scheduled_at
                AND id = p_id FOR UPDATE;
        ELSE
            PERFORM FROM {later} WHERE type_name = v_job.type_name AND scheduled_at = v_job.scheduled_at
                AND id = p_id FOR UPDATE SKIP LOCKED;
        END IF;
        IF FOUND OR p_mode = 'free' THEN
            RETURN FOUND;
        END IF;
        -- The job moved to another table between two lookups. With a fixed snapshot we cannot see
        -- its new row.
        IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
            RAISE serialization_failure USING MESSAGE = 'could not serialize access due to concurrent update';
        END IF;
    END LOOP;
    RAISE data_corrupted USING MESSAGE = format('job %s is pending, but neither ready, nor due later, nor running', p_id);
END $body$;

-- Lock the chains that have these keys, if the rule of a key can find a chain only before it begins.
-- The keys are read without a lock: in-flight rows come first in the order of locks, and `take_key`
-- looks again. Blocked chains have no in-flight row; the caller locks them with the other job rows.
--
-- `o_passed`: chains that such a key must not find. While starts that overlap hold a chain, no claim
-- gets it. So one that has been due for five seconds is found only if no other start holds it. Then
-- the others end, and it begins.
CREATE OR REPLACE FUNCTION {hold_waiting}(
    p_types text[], p_keys text[], p_rules text[], p_now timestamptz, OUT o_held uuid[], OUT o_passed uuid[]
) LANGUAGE plpgsql AS $body$
DECLARE
    v_chain record;
    v_mode text;
BEGIN
    o_held := '{}';
    o_passed := '{}';
    FOR v_chain IN
        SELECT first.id, first.scheduled_at, bool_and(asked.rule = 'waiting') AS share
        FROM unnest(p_types, p_keys, p_rules) AS asked (type_name, key, rule)
        CROSS JOIN LATERAL (
            SELECT k.chain_id, k.started_at FROM {key} AS k
            WHERE k.chain_type = asked.type_name AND k.key = asked.key OFFSET 0
        ) AS known
        CROSS JOIN LATERAL (
            SELECT j.id, j.scheduled_at, j.blocker_count FROM {job} AS j
            WHERE j.id = known.chain_id AND j.status = 'pending' AND j.last_attempt_at IS NULL OFFSET 0
        ) AS first
        WHERE asked.rule = 'waiting' OR first.blocker_count = 0 AND (
            asked.rule IN ('postpone', 'replace', 'hold') OR asked.rule = 'trail' AND known.started_at > p_now
        )
        GROUP BY first.id, first.scheduled_at ORDER BY first.id
    LOOP
        v_mode := CASE
            WHEN NOT v_chain.share THEN 'alone'
            WHEN v_chain.scheduled_at < p_now - interval '5 seconds' THEN 'free'
            ELSE 'share'
        END;
        IF {lock_waiting}(v_chain.id, v_mode) THEN
            o_held := o_held || v_chain.id;
        ELSIF v_mode = 'free' THEN
            o_passed := o_passed || v_chain.id;
        END IF;
    END LOOP;
END $body$;

-- Returns the chain that has a deduplication key and matches, or NULL; then the new chain has the
-- key. `o_ended`: that chain was pruned, and had ended like this. `o_at`: when the new chain is due,
-- if the rule decides that. Without a match the row of `key` (primary key) is locked until the
-- transaction ends: a second start waits, and creates a chain only if this one is rolled back.
--
-- If a chain matches only before it begins, and is not among those that are held, it was started
-- since we looked: QUE00. Its in-flight row comes before the key in the order of locks. So a match
-- needs no lock of the key. If another start takes the key meanwhile, this one came first.
--
-- `o_now`: the time by which this was decided. It is taken after each lock: a chain may have been
-- started under the key, or have begun, while this start waited.
CREATE OR REPLACE FUNCTION {take_key}(
    p_type text, p_key text, p_id uuid, p_rule text, p_window double precision, p_exclude uuid[], p_new uuid[], p_held uuid[],
    p_passed uuid[], OUT o_chain uuid, OUT o_ended text, OUT o_at timestamptz, OUT o_now timestamptz
) LANGUAGE plpgsql AS $body$
DECLARE
    v_key {key}%ROWTYPE;
    v_found record;
    v_matches boolean;
    v_locked boolean := false;
    v_length interval := CASE WHEN p_window IS NOT NULL THEN make_interval(secs => least(p_window, {longest})) END;
    -- A key with the scope "any" and a window outlives its chain.
    v_window uuid := CASE WHEN p_rule IN ('any', 'trail') AND p_window IS NOT NULL THEN p_id END;
    v_lasts interval := CASE WHEN v_window IS NOT NULL THEN v_length END;
    v_due timestamptz;
BEGIN
    LOOP
        o_at := NULL;
        IF v_locked THEN
            SELECT * INTO v_key FROM {key} AS k WHERE k.chain_type = p_type AND k.key = p_key FOR UPDATE;
        ELSE
            SELECT * INTO v_key FROM {key} AS k WHERE k.chain_type = p_type AND k.key = p_key;
        END IF;
        o_now := {clock};
        IF v_key.chain_id IS NOT NULL THEN
            SELECT last.status, first.created_at, first.blocker_count,
                first.status IN ('blocked', 'pending') AND first.last_attempt_at IS NULL
                    AND NOT EXISTS (SELECT FROM {running} AS r WHERE r.job_id = first.id) AS waiting
            INTO v_found
            FROM {job} AS first
            CROSS JOIN LATERAL (
                SELECT j.status FROM {job} AS j WHERE j.chain_id = first.id ORDER BY j.chain_index DESC LIMIT 1
            ) AS last
            WHERE first.id = v_key.chain_id;
            IF FOUND THEN
                v_matches := v_key.chain_id <> ALL (p_exclude) AND CASE p_rule
                    WHEN 'any' THEN true
                    WHEN 'incomplete' THEN v_found.status IN ('blocked', 'pending')
                    WHEN 'waiting' THEN v_found.waiting AND v_key.chain_id <> ALL (p_passed)
                    ELSE v_found.waiting AND v_found.blocker_count = 0
                END;
                v_due := CASE WHEN v_key.window_chain = v_key.chain_id THEN v_key.started_at ELSE v_found.created_at END;
                IF p_rule = 'trail' THEN
                    v_matches := v_matches AND v_due > o_now;
                ELSE
                    v_matches := v_matches AND (p_window IS NULL OR v_found.created_at > o_now - v_length);
                END IF;
                IF v_matches AND p_rule NOT IN ('any', 'incomplete') AND v_found.status = 'pending'
                    AND v_key.chain_id <> ALL (p_held)
                THEN
                    RAISE SQLSTATE 'QUE00';
                END IF;
            ELSIF v_key.window_chain = v_key.chain_id AND v_key.ended IS NOT NULL THEN
                v_due := v_key.started_at;
                v_matches := p_rule = 'any' AND p_window IS NOT NULL AND v_key.chain_id <> ALL (p_exclude)
                    AND v_key.started_at > o_now - v_length;
                o_ended := CASE WHEN v_matches THEN v_key.ended END;
            ELSE
                v_due := NULL;
                -- The same call starts this chain now, so it is inside any window longer than 0.
                v_matches := v_key.chain_id = ANY (p_new) AND v_key.chain_id <> ALL (p_exclude)
                    AND (p_window IS NULL OR v_length > interval '0');
            END IF;
            IF v_matches THEN
                o_chain := v_key.chain_id;
                RETURN;
            END IF;
            IF p_rule = 'trail' THEN
                o_at := CASE WHEN v_due > o_now THEN v_due WHEN v_due > o_now - v_length THEN v_due + v_length END;
            END IF;
            IF v_locked THEN
                UPDATE {key} AS k SET chain_id = p_id, window_chain = v_window, started_at = coalesce(o_at, o_now),
                    until = coalesce(o_at, o_now) + v_lasts, ended = NULL
                WHERE k.chain_type = p_type AND k.key = p_key;
                RETURN;
            END IF;
        END IF;
        INSERT INTO {key} (chain_type, key, chain_id, window_chain, started_at, until)
        VALUES (p_type, p_key, p_id, v_window, o_now, o_now + v_lasts) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            o_at := NULL;
            RETURN;
        END IF;
        v_locked := true;
    END LOOP;
END $body$;

-- Change jobs that have not begun, by the rules of `NewJob.collapse`. The caller has locked their
-- in-flight rows and their own. Primary keys.
CREATE OR REPLACE FUNCTION {change_waiting}(
    p_ids uuid[], p_rules text[], p_windows double precision[], p_inputs text[], p_priorities integer[], p_at timestamptz[],
    p_after double precision[], p_deadline_at timestamptz[], p_deadline_after double precision[], p_now timestamptz, p_lanes text[],
    p_weights double precision[]
) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    PERFORM {dequeue}(p_ids);
    UPDATE {job} AS j SET
        scheduled_at = CASE WHEN n.rule = 'trail' THEN j.scheduled_at ELSE greatest(p_now, least(
            coalesce(n.at_time, p_now + make_interval(secs => coalesce(n.after_time, 0))),
            j.created_at + make_interval(secs => n.window_seconds)
        )) END,
        input = CASE WHEN n.rule = 'postpone' THEN j.input ELSE n.input::json END,
        priority = CASE WHEN n.rule = 'postpone' THEN j.priority ELSE n.priority END,
        deadline = CASE WHEN n.rule = 'postpone' THEN j.deadline
            ELSE coalesce(n.deadline_at, p_now + make_interval(secs => n.deadline_after)) END,
        lane = CASE WHEN n.rule = 'postpone' THEN j.lane ELSE n.lane END,
        weight = CASE WHEN n.rule = 'postpone' THEN j.weight ELSE n.weight END
    FROM unnest(p_ids, p_rules, p_windows, p_inputs, p_priorities, p_at, p_after, p_deadline_at, p_deadline_after, p_lanes, p_weights)
        AS n (id, rule, window_seconds, input, priority, at_time, after_time, deadline_at, deadline_after, lane, weight)
    WHERE j.id = n.id;
    PERFORM {enqueue}(p_ids, p_now);
END $body$;

-- The same for jobs that the caller's transaction holds (the rule 'hold'). They get everything.
CREATE OR REPLACE FUNCTION {swap_waiting}(
    p_ids text[], p_windows double precision[], p_inputs text[], p_priorities integer[], p_at timestamptz[],
    p_after double precision[], p_deadline_at timestamptz[], p_deadline_after double precision[], p_lanes text[],
    p_weights double precision[]
) RETURNS TABLE ({chain_types}) LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
BEGIN
    PERFORM {lock_current}('{}', p_ids::uuid[]);
    PERFORM {change_waiting}(
        p_ids::uuid[], array_fill('replace'::text, ARRAY[cardinality(p_ids)]), p_windows, p_inputs, p_priorities, p_at, p_after,
        p_deadline_at, p_deadline_after, {clock}, p_lanes, p_weights
    );
    RETURN QUERY SELECT * FROM {read_chains}(p_ids);
END $body$;

-- The first problem with new jobs, of which those in `p_stored` are stored, or NULL; and its position: an id that
-- exists, or is there twice. Locks nothing. Primary key.
CREATE OR REPLACE FUNCTION {taken_id}(p_ids uuid[], p_stored boolean[], OUT problem jsonb, OUT place integer) LANGUAGE plpgsql AS $body$
BEGIN
    SELECT jsonb_build_object('problem', 'id_exists', 'job_id', asked.id), asked.n INTO problem, place
    FROM (
        SELECT new.id, new.n, row_number() OVER (PARTITION BY new.id ORDER BY new.n) AS time
        FROM unnest(p_ids, p_stored) WITH ORDINALITY AS new (id, stored, n) WHERE new.stored
    ) AS asked
    -- OFFSET 0: each id is looked up by itself, whatever the plan was made for.
    WHERE asked.time > 1 OR EXISTS (SELECT FROM {job} AS j WHERE j.id = asked.id OFFSET 0)
    ORDER BY asked.n LIMIT 1;
END $body$;

-- Returns one row for each job. A job whose chain was found under its key has its position, because
-- others may have the same id, and a status if that chain was pruned. A problem is raised as QUE01
-- with the details as its message. QUE00: begin again, after all locks are released. Edges name the
-- position of their job in the call, and the position of the job that starts their chain (NULL: no
-- earlier job of the call starts it).
CREATE OR REPLACE FUNCTION {try_create}(
    p_ids text[], p_types text[], p_chains text[], p_chain_types text[], p_indexes integer[], p_inputs text[],
    p_priorities integer[], p_at timestamptz[], p_after double precision[], p_deadline_at timestamptz[],
    p_deadline_after double precision[], p_traces text[], p_chain_traces text[],
    p_keys text[], p_key_rules text[], p_key_windows double precision[], p_key_excludes text[],
    p_edge_places integer[], p_edge_chains text[], p_edge_types text[], p_edge_within integer[], p_edge_traces text[],
    p_lanes text[], p_weights double precision[]
) RETURNS TABLE (id uuid, status text, ready boolean, existing uuid, place integer) LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz := {clock};
    v_ids uuid[] := p_ids::uuid[];
    v_store boolean[] := array_fill(true, ARRAY[cardinality(p_ids)]);
    v_existing uuid[];
    v_ended text[];
    v_at timestamptz[] := p_at;
    v_held uuid[] := '{}';
    v_passed uuid[] := '{}';
    v_blocked uuid[] := '{}';
    v_changed integer[] := '{}';
    v_changed_ids uuid[];
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
    v_taken record;
    v_item record;
    v_found record;
BEGIN
    IF cardinality(p_keys) > 0 THEN
        v_existing := array_fill(NULL::uuid, ARRAY[cardinality(p_ids)]);
        v_ended := array_fill(NULL::text, ARRAY[cardinality(p_ids)]);
        IF p_key_rules && ARRAY['waiting', 'postpone', 'replace', 'hold', 'trail'] THEN
            SELECT held.o_held, held.o_passed INTO v_held, v_passed
            FROM {hold_waiting}(p_types, p_keys, p_key_rules, v_now) AS held;
        END IF;
        -- By type and key, so that two starts never wait for each other; then in the order of the
        -- call.
        FOR v_item IN
            SELECT asked.* FROM unnest(v_ids, p_types, p_keys, p_key_rules, p_key_windows, p_key_excludes)
                WITH ORDINALITY AS asked (id, type_name, key, rule, window_seconds, exclude, n)
            WHERE asked.key IS NOT NULL ORDER BY asked.type_name, asked.key, asked.n
        LOOP
            SELECT * INTO v_found FROM {take_key}(
                v_item.type_name, v_item.key, v_item.id, v_item.rule, v_item.window_seconds,
                coalesce(string_to_array(v_item.exclude, ','), '{}')::uuid[], v_ids, v_held, v_passed
            );
            v_now := greatest(v_now, v_found.o_now);
            IF v_found.o_chain IS NOT NULL THEN
                v_existing[v_item.n] := v_found.o_chain;
                v_ended[v_item.n] := v_found.o_ended;
                v_store[v_item.n] := false;
                IF v_item.rule IN ('postpone', 'replace', 'trail') THEN
                    v_changed := v_changed || v_item.n::integer;
                ELSIF v_item.rule = 'waiting' AND v_found.o_chain <> ALL (v_held) THEN
                    v_blocked := v_blocked || v_found.o_chain;
                END IF;
            ELSE
                v_at[v_item.n] := coalesce(v_found.o_at, v_at[v_item.n]);
            END IF;
        END LOOP;
        v_changed_ids := array(SELECT v_existing[changed.n] FROM unnest(v_changed) AS changed (n));
    END IF;
    -- The first job with a problem is reported; for one job, its id before its edges.
    v_taken := {taken_id}(v_ids, v_store);
    IF cardinality(p_edge_places) > 0 THEN
        FOR v_item IN
            SELECT edge.* FROM unnest(p_edge_places, p_edge_chains::uuid[], p_edge_types, p_edge_within, p_edge_traces)
                WITH ORDINALITY AS edge (place, chain_id, type_name, within, trace, n) ORDER BY edge.n
        LOOP
            CONTINUE WHEN NOT v_store[v_item.place] OR v_item.place >= v_taken.place;
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
        ), v_changed_ids || v_blocked);
        v_problem := coalesce(
            {check_edges}(v_edge_jobs, v_edge_jobs, v_edge_chains, v_edge_types, v_new_types), v_taken.problem
        );
        IF v_problem IS NOT NULL THEN
            RAISE SQLSTATE 'QUE01' USING MESSAGE = v_problem::text;
        END IF;
        SELECT counted.o_edges, counted.o_waiting, counted.o_dependents INTO v_edges, v_waiting, v_dependents
        FROM {count_edges}(v_edge_places, v_edge_chains, v_edge_within, cardinality(v_ids)) AS counted;
        PERFORM {add_edges}(v_edge_jobs, v_edge_chains, v_edge_within, v_edge_traces);
    ELSIF v_taken.problem IS NOT NULL THEN
        RAISE SQLSTATE 'QUE01' USING MESSAGE = v_taken.problem::text;
    ELSIF cardinality(v_changed_ids || v_blocked) > 0 THEN
        PERFORM {lock_current}('{}', v_changed_ids || v_blocked);
    END IF;
    IF cardinality(v_blocked) > 0 THEN
        -- A chain that was blocked when we looked may have been freed, and have begun.
        PERFORM FROM {job} AS j WHERE j.id = ANY (v_blocked) AND j.status <> 'blocked';
        IF FOUND THEN
            RAISE SQLSTATE 'QUE00';
        END IF;
    END IF;
    IF cardinality(v_changed) > 0 THEN
        PERFORM {change_waiting}(
            array_agg(v_existing[changed.n]), array_agg(p_key_rules[changed.n]), array_agg(p_key_windows[changed.n]),
            array_agg(p_inputs[changed.n]), array_agg(p_priorities[changed.n]), array_agg(p_at[changed.n]),
            array_agg(p_after[changed.n]), array_agg(p_deadline_at[changed.n]), array_agg(p_deadline_after[changed.n]), v_now,
            array_agg(p_lanes[changed.n]), array_agg(p_weights[changed.n])
        ) FROM unnest(v_changed) AS changed (n);
    END IF;
    RETURN QUERY
    SELECT made.id, made.status, made.ready, NULL::uuid, NULL::integer
    FROM {insert_jobs}(
        v_ids, p_types, p_chains::uuid[], p_chain_types, p_indexes, p_inputs, p_priorities, v_at, p_after, p_deadline_at,
        p_deadline_after, p_keys, p_traces, p_chain_traces, v_store, v_edges, v_waiting, v_dependents, v_now, p_lanes, p_weights
    ) AS made;
    RETURN QUERY
    SELECT asked.id, asked.ended, false, asked.existing, asked.n::integer
    FROM unnest(v_ids, v_existing, v_ended) WITH ORDINALITY AS asked (id, existing, ended, n) WHERE asked.existing IS NOT NULL;
END $body$;

-- Returns one row for each job, or one row with a problem, and then nothing is written. An error
-- would make the caller's transaction unusable, so it is caught here, which undoes what was done
-- before it. QUE00 undoes it too, releases the locks, and begins again.
CREATE OR REPLACE FUNCTION {create_jobs}(
    p_ids text[], p_types text[], p_chains text[], p_chain_types text[], p_indexes integer[], p_inputs text[],
    p_priorities integer[], p_at timestamptz[], p_after double precision[], p_deadline_at timestamptz[],
    p_deadline_after double precision[], p_traces text[], p_chain_traces text[],
    p_keys text[], p_key_rules text[], p_key_windows double precision[], p_key_excludes text[],
    p_edge_places integer[], p_edge_chains text[], p_edge_types text[], p_edge_within integer[], p_edge_traces text[],
    p_lanes text[], p_weights double precision[]
) RETURNS TABLE (id text, status text, ready boolean, existing text, problem text, place integer)
LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_problem text;
BEGIN
    LOOP
        BEGIN
            RETURN QUERY SELECT made.id::text, made.status, made.ready, made.existing::text, NULL::text, made.place
            FROM {try_create}(
                p_ids, p_types, p_chains, p_chain_types, p_indexes, p_inputs, p_priorities, p_at, p_after, p_deadline_at,
                p_deadline_after, p_traces, p_chain_traces, p_keys, p_key_rules, p_key_windows, p_key_excludes,
                p_edge_places, p_edge_chains, p_edge_types, p_edge_within, p_edge_traces, p_lanes, p_weights
            ) AS made;
            RETURN;
        EXCEPTION
            WHEN SQLSTATE 'QUE00' THEN
                NULL;
            WHEN SQLSTATE 'QUE01' THEN
                GET STACKED DIAGNOSTICS v_problem = MESSAGE_TEXT;
                EXIT;
            WHEN unique_violation THEN
                -- Another transaction has stored one of these ids since we looked.
                SELECT jsonb_build_object('problem', 'id_exists', 'job_id', asked) INTO v_problem
                FROM unnest(p_ids) AS asked WHERE EXISTS (SELECT FROM {job} AS j WHERE j.id = asked::uuid) LIMIT 1;
                IF v_problem IS NULL THEN
                    RAISE;
                END IF;
                EXIT;
        END;
    END LOOP;
    RETURN QUERY SELECT NULL::text, NULL::text, NULL::boolean, NULL::text, v_problem, NULL::integer;
END $body$;

-- The common start, made cheap: first jobs of one type and priority, due now, without keys or
-- edges. Returns the problem, if there is one, and then nothing is written. Few jobs need no
-- subtransaction: an id that exists is skipped, and the rows written beside it are deleted again.
-- For many, looking for conflicts with each row costs more than a subtransaction for all. Locks only
-- what it inserts. `p_lanes` is null if none of them has a limit.
CREATE OR REPLACE FUNCTION {begin_chains}(p_ids uuid[], p_type text, p_priority integer, p_inputs text[], p_lanes text[]) RETURNS text
LANGUAGE plpgsql {steady} AS $body$
DECLARE
    v_now timestamptz := {clock};
    v_stored uuid[];
    v_problem text;
BEGIN
    IF p_lanes IS NULL AND cardinality(p_ids) > 20 THEN
        BEGIN
            INSERT INTO {job} (
                id, type_name, chain_id, chain_type, chain_index, input, status, priority, created_at, scheduled_at
            )
            SELECT n.id, p_type, n.id, p_type, 0, n.input::json, 'pending', p_priority, v_now, v_now
            FROM unnest(p_ids, p_inputs) AS n (id, input);
            INSERT INTO {ready} (type_name, priority, scheduled_at, id)
            SELECT p_type, p_priority, v_now, n.id FROM unnest(p_ids) AS n (id);
            RETURN NULL;
        EXCEPTION WHEN unique_violation THEN
            NULL;  -- below, it is found out which id exists
        END;
    END IF;
    LOOP
        WITH new AS (
            INSERT INTO {job} AS j (
                id, type_name, chain_id, chain_type, chain_index, input, status, priority, created_at, scheduled_at, lane
            )
            SELECT n.id, p_type, n.id, p_type, 0, n.input::json, 'pending', p_priority, v_now, v_now, n.lane
            FROM unnest(p_ids, p_inputs, p_lanes) AS n (id, input, lane)
            ON CONFLICT (id) DO NOTHING
            RETURNING j.id
        )
        SELECT array_agg(new.id) INTO v_stored FROM new;
        EXIT WHEN cardinality(v_stored) = cardinality(p_ids);
        DELETE FROM {job} WHERE id = ANY (v_stored);
        SELECT taken.problem INTO v_problem FROM {taken_id}(p_ids, array_fill(true, ARRAY[cardinality(p_ids)])) AS taken;
        IF v_problem IS NOT NULL THEN
            RETURN v_problem;
        END IF;
        -- The job with that id was deleted meanwhile: try again.
    END LOOP;
    IF p_lanes IS NULL THEN
        INSERT INTO {ready} (type_name, priority, scheduled_at, id)
        SELECT p_type, p_priority, v_now, n.id FROM unnest(p_ids) AS n (id);
    ELSE
        INSERT INTO {line} (lane, priority, scheduled_at, id, type_name)
        SELECT n.lane, p_priority, v_now, n.id, p_type FROM unnest(p_ids, p_lanes) AS n (id, lane);
    END IF;
    RETURN NULL;
END $body$;

-- One chain whose job is plain: no arrays, and no plan that could become a bad one.
CREATE OR REPLACE FUNCTION {begin_one}(p_id uuid, p_type text, p_priority integer, p_input text) RETURNS text
LANGUAGE plpgsql AS $body$
DECLARE
    v_now timestamptz := {clock};
BEGIN
    INSERT INTO {job} (
        id, type_name, chain_id, chain_type, chain_index, input, status, priority, created_at, scheduled_at
    )
    VALUES (p_id, p_type, p_id, p_type, 0, p_input::json, 'pending', p_priority, v_now, v_now)
    ON CONFLICT (id) DO NOTHING;
    IF NOT FOUND THEN
        RETURN {begin_chains}(ARRAY[p_id], p_type, p_priority, ARRAY[p_input], NULL);
    END IF;
    INSERT INTO {ready} (type_name, priority, scheduled_at, id) VALUES (p_type, p_priority, v_now, p_id);
    RETURN NULL;
END $body$;
