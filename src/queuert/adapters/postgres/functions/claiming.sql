-- Claiming jobs, renewing and holding claims, reaping expired leases.

-- Scan positions. As long as another session keeps an old snapshot, the index entries of claimed
-- jobs stay at the head of the primary key of `ready`, and every claim has to step over them. A
-- claim that met many of them returns how far it came in each type, and the next claims start
-- there: for thirty times as long as this claim took, at most ten seconds, and only while that fills
-- their limit. So no job waits while a worker is idle. But a job that arrives before a position,
-- such as a more urgent one, may be passed by others for that time. Then `passed` looks for such
-- jobs. If there are none, the position is good for another time, but a minute after it was made,
-- a claim reads everything again: the dead entries may be gone.
--
-- Returns for each type: where to start; up to which time due jobs were moved from `later` (only if
-- all of them were: `p_moved_all`); until when this is valid; and when to read everything again. A
-- type of which nothing was taken starts a little before its first job, or behind all entries if it
-- has none.
CREATE OR REPLACE FUNCTION {scan_positions}(
    p_types text[], p_priorities integer[], p_times timestamptz[], p_ids uuid[], p_since timestamptz[], p_until timestamptz[],
    p_again timestamptz[], p_moved_all boolean, p_now timestamptz
) RETURNS text LANGUAGE plpgsql AS $body$
DECLARE
    v_since timestamptz := CASE WHEN p_moved_all THEN p_now ELSE '-infinity' END;
    v_until timestamptz := p_now + least(30 * ({clock} - p_now), interval '10 seconds');
BEGIN
    RETURN (
        SELECT json_object_agg(m.name, json_build_array(
            start.priority, start.time, start.id, coalesce(m.since, v_since), coalesce(m.until, v_until),
            coalesce(m.again, p_now + interval '1 minute')
        ))
        FROM unnest(p_types, p_priorities, p_times, p_ids, p_since, p_until, p_again)
            AS m (name, priority, time, id, since, until, again)
        CROSS JOIN LATERAL (
            SELECT m.priority, m.time, m.id::text WHERE m.time > '-infinity'
            UNION ALL
            (SELECT e.priority, e.scheduled_at, left(e.id::text, 24) || '000000000000' FROM {ready} AS e
                WHERE e.type_name = m.name ORDER BY e.priority, e.scheduled_at, e.id LIMIT 1)
            UNION ALL
            SELECT 2147483647, 'infinity', 'ffffffff-ffff-ffff-ffff-ffffffffffff'
            LIMIT 1
        ) AS start (priority, time, id)
    );
END $body$;

-- Whether there may be jobs before these positions, of the types that have something left to claim.
-- Reads the table instead of the index: to step over a dead row costs a fifth of what it costs to
-- step over its entry. That pays only if most rows are dead; else it answers true, and the index
-- tells. Nothing is locked.
CREATE OR REPLACE FUNCTION {passed}(
    p_types text[], p_left integer[], p_priorities integer[], p_times timestamptz[], p_ids uuid[]
) RETURNS boolean LANGUAGE plpgsql
SET plan_cache_mode TO force_generic_plan SET enable_indexscan TO off SET enable_indexonlyscan TO off SET enable_bitmapscan TO off
SET max_parallel_workers_per_gather TO 0 SET jit TO off AS $body$
BEGIN
    RETURN pg_stat_get_dead_tuples({ready_text}::regclass) <= pg_stat_get_live_tuples({ready_text}::regclass) OR EXISTS (
        SELECT FROM (
            SELECT e.priority, e.scheduled_at, e.id, array_position(p_types, e.type_name) AS n FROM {ready} AS e
            WHERE e.type_name = ANY (p_types) OFFSET 0
        ) AS live
        WHERE p_left[live.n] > 0 AND (live.priority, live.scheduled_at, live.id) < (p_priorities[live.n], p_times[live.n], p_ids[live.n])
    );
END $body$;

-- How many jobs each queue has room for, and how many the cluster has (null: no cap). Only called if
-- there is a cap. Claims under one cap wait here for each other. The locks are taken in the order of
-- their numbers (two names may have one number). Running jobs are counted in a later statement, with
-- a newer snapshot.
CREATE OR REPLACE FUNCTION {cap_rooms}(
    p_queue_names text[], p_queue_caps integer[], p_member_queues integer[], p_member_types text[], p_cluster_cap integer,
    OUT rooms integer[], OUT total bigint
) LANGUAGE plpgsql AS $body$
DECLARE
    v_lock integer;
BEGIN
    FOR v_lock IN
        SELECT DISTINCT hashtext(named.name) FROM (
            SELECT '{lock_name}cluster' AS name WHERE p_cluster_cap IS NOT NULL
            UNION ALL
            SELECT '{lock_name}queue.' || q.name FROM unnest(p_queue_names, p_queue_caps) AS q (name, cap) WHERE q.cap IS NOT NULL
        ) AS named ORDER BY 1
    LOOP
        PERFORM pg_advisory_xact_lock({lock_space}, v_lock);
    END LOOP;
    WITH counted AS MATERIALIZED (
        SELECT r.queue, r.type_name, count(*) AS number FROM {running} AS r GROUP BY r.queue, r.type_name
    )
    SELECT
        greatest(0, p_cluster_cap - coalesce((SELECT sum(number) FROM counted), 0)),
        (SELECT array_agg(
            CASE WHEN q.cap IS NOT NULL THEN greatest(0, q.cap - coalesce((
                SELECT sum(c.number) FROM counted AS c
                WHERE c.queue = q.name OR c.queue IS NULL AND EXISTS (
                    SELECT FROM unnest(p_member_queues, p_member_types) AS m (queue, type_name)
                    WHERE m.queue = q.n AND m.type_name = c.type_name
                )
            ), 0))::integer END ORDER BY q.n
        ) FROM unnest(p_queue_names, p_queue_caps) WITH ORDINALITY AS q (name, cap, n))
    INTO total, rooms;
    IF p_cluster_cap IS NULL THEN
        total := NULL;
    END IF;
END $body$;

-- Claim ready jobs. The first row has `more`, `next_in`, `claimed_at`, in the column `blockers` the
-- scan positions if there are any, and in `last_error` the pauses that were in the way. The other
-- rows are the jobs in their order, with the columns that differ from job to job; the caller knows
-- the rest. `chain_id` is null for the first job of a chain, `ran_before` for a job that no run has
-- begun of. Times that every job has are numbers: drivers take ten times as long to read a
-- timestamp. `p_queues[i]` is the position of the queue of the type `p_types[i]`. The first job gets
-- `p_token`, the next ones the numbers after it. Jobs after the first `p_at_once` get ordinals: the
-- first job of the claim would have `p_ordinal`.
--
-- A cap counts the running jobs that were claimed through a queue of this name, by anybody. Rows of
-- older versions name no queue: they count if their type is a member (pairs of queue and type). All
-- caps together read `running` once; without a cap, it is not read.
--
-- Types that are paused are left out, also of `more` and `next_in`; `next_in` includes the end of
-- their pauses.
--
-- Locks: an advisory lock for each cap, which is waited for; then rows of `later` and `ready`,
-- where locked ones are skipped. Rows are found along the primary keys of these two tables.
CREATE OR REPLACE FUNCTION {claim}(
    p_worker text, p_limit integer, p_types text[], p_queues integer[], p_limits integer[], p_leases double precision[],
    p_queue_names text[], p_queue_priorities integer[], p_queue_caps integer[], p_member_queues integer[],
    p_member_types text[], p_cluster_cap integer, p_positions text, p_at_once integer, p_ordinal bigint, p_token bigint,
    p_statistics boolean
) RETURNS TABLE (
    id text, type_name text, chain_id text, chain_type text, chain_index integer, input text, priority integer,
    created_at double precision, scheduled_at double precision, attempt integer, token bigint, ordinal bigint, last_error text, deadline timestamptz,
    dedup_key text, blockers_left integer, trace_context text, chain_trace_context text, expired boolean, ran_before boolean,
    blockers text, more boolean, next_in double precision, claimed_at timestamptz
) LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_capped boolean := EXISTS (SELECT FROM unnest(p_queue_caps) AS cap WHERE cap IS NOT NULL);
    v_room integer[];
    v_total bigint := p_limit;
    v_wanted bigint;
    v_more boolean := false;
    v_next timestamptz;
    v_number integer := cardinality(p_types);
    v_left integer[] := p_limits;
    v_shut integer[] := '{}';
    v_resume timestamptz;
    v_paused text;
    -- How far each type has been scanned: every row up to there is ours, or locked by another
    -- session.
    v_from_priority integer[] := array_fill(-2147483648, ARRAY[v_number]);
    v_from_time timestamptz[] := array_fill('-infinity'::timestamptz, ARRAY[v_number]);
    v_from_id uuid[] := array_fill('00000000-0000-0000-0000-000000000000'::uuid, ARRAY[v_number]);
    v_since timestamptz[] := array_fill(NULL::timestamptz, ARRAY[v_number]);
    v_until timestamptz[] := v_since;
    v_again timestamptz[] := v_since;
    v_start_priority integer[];
    v_start_time timestamptz[];
    v_start_id uuid[];
    v_positions json := p_positions;
    v_position json;
    v_old integer[] := '{}';
    v_resumed boolean := false;
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
BEGIN
    IF v_capped OR p_cluster_cap IS NOT NULL THEN
        SELECT found.rooms, coalesce(found.total, p_limit) INTO v_room, v_total
        FROM {cap_rooms}(p_queue_names, p_queue_caps, p_member_queues, p_member_types, p_cluster_cap) AS found;
    END IF;
    v_now := {clock};
    -- What is paused is as if its limit were used up. Seen here is every pause that was committed
    -- before this statement. Mostly, this is one look at an empty table.
    IF EXISTS (SELECT FROM {pause}) THEN
        SELECT coalesce(found.shut, '{}'), found.until, found.paused INTO v_shut, v_resume, v_paused FROM {pauses_of}(
            p_types, ARRAY(SELECT p_queue_names[q.n] FROM unnest(p_queues) WITH ORDINALITY AS q (n, place) ORDER BY q.place), v_now
        ) AS found;
        FOREACH v_type IN ARRAY v_shut LOOP
            v_left[v_type] := 0;
        END LOOP;
    END IF;
    v_wanted := least(v_total, p_limit);
    IF v_positions IS NOT NULL THEN
        FOR v_type IN 1..v_number LOOP
            v_position := v_positions -> p_types[v_type];
            IF (v_position ->> 5)::timestamptz > v_now THEN
                v_resumed := true;
                v_from_priority[v_type] := v_position ->> 0;
                v_from_time[v_type] := v_position ->> 1;
                v_from_id[v_type] := v_position ->> 2;
                v_again[v_type] := v_position ->> 5;
                IF (v_position ->> 4)::timestamptz > v_now THEN
                    v_since[v_type] := v_position ->> 3;
                    v_until[v_type] := v_position ->> 4;
                ELSE
                    v_old := v_old || v_type;
                END IF;
            END IF;
        END LOOP;
    END IF;
    v_moved_all := {promote}(p_types, v_since, greatest(1000, p_limit), v_now) < greatest(1000, p_limit);
    IF v_resumed THEN
        IF cardinality(v_old) > 0 AND {passed}(p_types, v_left, v_from_priority, v_from_time, v_from_id) THEN
            v_resumed := cardinality(array_remove(v_until, NULL)) > 0;
            FOREACH v_type IN ARRAY v_old LOOP
                v_from_priority[v_type] := -2147483648;
                v_from_time[v_type] := '-infinity';
                v_from_id[v_type] := '00000000-0000-0000-0000-000000000000';
                v_again[v_type] := NULL;
            END LOOP;
        END IF;
        v_start_priority := v_from_priority;
        v_start_time := v_from_time;
        v_start_id := v_from_id;
    END IF;
    v_pages := pg_stat_get_xact_blocks_fetched({ready_key}::regclass);
    IF NOT v_capped AND v_number = 1 AND v_left[1] >= p_limit THEN
        -- One type and no cap: take the head of the index.
        SELECT coalesce(array_agg(head.place), '{}'), coalesce(array_agg(head.id), '{}'), coalesce(array_agg(1), '{}'),
            array_agg(head.priority), array_agg(head.scheduled_at)
        INTO v_taken, v_found, v_types, v_priorities, v_times
        FROM (
            SELECT e.ctid AS place, e.priority, e.scheduled_at, e.id FROM {ready} AS e WHERE e.type_name = p_types[1]
                AND (e.priority, e.scheduled_at, e.id) > (v_from_priority[1], v_from_time[1], v_from_id[1])
            ORDER BY e.priority, e.scheduled_at, e.id LIMIT v_wanted FOR UPDATE SKIP LOCKED
        ) AS head;
        v_row := cardinality(v_found);
        IF v_row > 0 THEN
            v_left[1] := v_left[1] - v_row;
            v_from_priority[1] := v_priorities[v_row];
            v_from_time[1] := v_times[v_row];
            v_from_id[1] := v_found[v_row];
        END IF;
    ELSIF NOT v_capped AND v_wanted <= ALL (v_left) THEN
        -- Several types, and no limit that could matter: the first candidates of all types, if none
        -- is locked.
        SELECT array_agg(c.place), array_agg(c.id), array_agg(c.kind), array_agg(c.priority), array_agg(c.scheduled_at)
        INTO v_places, v_ids, v_kinds, v_priorities, v_times
        FROM (
            SELECT r.place, r.id, t.n::integer AS kind, r.priority, r.scheduled_at
            FROM unnest(p_types, p_queues, v_from_priority, v_from_time, v_from_id) WITH ORDINALITY
                AS t (name, queue, from_priority, from_time, from_id, n)
            CROSS JOIN LATERAL (
                SELECT e.ctid AS place, e.priority, e.scheduled_at, e.id FROM {ready} AS e
                WHERE e.type_name = t.name
                    AND (e.priority, e.scheduled_at, e.id) > (t.from_priority, t.from_time, t.from_id)
                ORDER BY e.priority, e.scheduled_at, e.id LIMIT v_wanted
            ) AS r
            ORDER BY p_queue_priorities[t.queue], r.priority, r.scheduled_at, r.id
            LIMIT v_wanted
        ) AS c;
        IF v_ids IS NOT NULL THEN
            SELECT array_agg(locked.id ORDER BY locked.id) IS DISTINCT FROM (SELECT array_agg(c.id ORDER BY c.id) FROM unnest(v_ids) AS c (id))
            INTO v_in_turn
            FROM (SELECT r.id FROM {ready} AS r WHERE r.ctid = ANY (v_places) FOR UPDATE SKIP LOCKED) AS locked;
            IF NOT v_in_turn THEN
                v_taken := v_places;
                v_found := v_ids;
                v_types := v_kinds;
                FOR v_type, v_row, v_count IN
                    SELECT k.kind, max(k.n), count(*) FROM unnest(v_kinds) WITH ORDINALITY AS k (kind, n) GROUP BY k.kind
                LOOP
                    v_left[v_type] := v_left[v_type] - v_count;
                    v_from_priority[v_type] := v_priorities[v_row];
                    v_from_time[v_type] := v_times[v_row];
                    v_from_id[v_type] := v_ids[v_row];
                END LOOP;
            END IF;
        END IF;
    ELSE
        v_in_turn := true;
    END IF;
    IF v_in_turn THEN
        -- Find the next candidates in order, without locks; then lock those that are free. Locking
        -- many more rows than are taken would leave nothing for other workers to claim. If some
        -- were locked, continue after them and do not read them again: then a transaction that
        -- holds thousands of jobs does not slow down claims.
        v_window := v_wanted;
        WHILE cardinality(v_found) < v_wanted LOOP
            SELECT array_agg(c.place), array_agg(c.id), array_agg(c.kind), array_agg(c.priority), array_agg(c.scheduled_at)
            INTO v_places, v_ids, v_kinds, v_priorities, v_times
            FROM (
                SELECT r.place, r.id, t.n::integer AS kind, r.priority, r.scheduled_at
                FROM unnest(p_types, p_queues, v_left, v_from_priority, v_from_time, v_from_id) WITH ORDINALITY
                    AS t (name, queue, left_over, from_priority, from_time, from_id, n)
                CROSS JOIN LATERAL (
                    SELECT e.ctid AS place, e.priority, e.scheduled_at, e.id FROM {ready} AS e
                    WHERE e.type_name = t.name
                        AND (e.priority, e.scheduled_at, e.id) > (t.from_priority, t.from_time, t.from_id)
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
                -- A job over its limit may be within it if one chosen earlier turns out to be
                -- locked: the position stays in front of it.
                CONTINUE WHEN v_left[v_type] <= 0 OR v_room[p_queues[v_type]] <= 0;
                v_from_priority[v_type] := v_priorities[v_row];
                v_from_time[v_type] := v_times[v_row];
                v_from_id[v_type] := v_ids[v_row];
                IF NOT v_first THEN
                    -- Some are locked: take them one by one, so that no row is locked without need.
                    PERFORM FROM {ready} AS r WHERE r.ctid = v_places[v_row] AND r.id = v_ids[v_row] FOR UPDATE SKIP LOCKED;
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
                v_room[p_queues[v_type]] := v_room[p_queues[v_type]] - 1;
                EXIT WHEN cardinality(v_found) + cardinality(v_chosen) >= v_wanted;
            END LOOP;
            IF v_first THEN
                SELECT coalesce(array_agg(locked.row), '{}') INTO v_free FROM (
                    SELECT c.row FROM unnest(v_chosen, v_chosen_places, v_chosen_ids) AS c (row, place, id)
                    JOIN {ready} AS r ON r.ctid = c.place AND r.id = c.id
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
                        v_room[p_queues[v_type]] := v_room[p_queues[v_type]] + 1;
                    END IF;
                END LOOP;
                v_first := NOT v_missed;
            END IF;
            EXIT WHEN cardinality(v_ids) < v_window AND NOT v_missed;
            v_window := least(greatest(v_window * 2, 20), greatest(p_limit, 1000));
        END LOOP;
    END IF;
    v_pages := pg_stat_get_xact_blocks_fetched({ready_key}::regclass) - v_pages;
    IF cardinality(v_found) >= p_limit AND (p_cluster_cap IS NULL OR v_total > p_limit) THEN
        v_more := EXISTS (
            SELECT FROM unnest(p_types, p_queues, v_left, v_from_priority, v_from_time, v_from_id)
                AS t (name, queue, left_over, from_priority, from_time, from_id)
            WHERE t.left_over > 0 AND (v_room[t.queue] IS NULL OR v_room[t.queue] > 0) AND EXISTS (
                SELECT FROM {ready} AS e WHERE e.type_name = t.name
                    AND (e.priority, e.scheduled_at, e.id) > (t.from_priority, t.from_time, t.from_id)
                ORDER BY e.priority, e.scheduled_at, e.id LIMIT 1
            )
        );
    END IF;
    IF cardinality(v_found) > 0 THEN
        -- Rows of `ready` are never updated, and these are locked by us: their ctids are still
        -- right.
        IF p_statistics AND (v_number > 1 OR v_in_turn) THEN
            WITH taken AS (DELETE FROM {ready} AS e WHERE e.ctid = ANY (v_taken) RETURNING e.type_name, e.scheduled_at)
            INSERT INTO {tally} (at, type_name, what, number, since)
            SELECT v_now, t.type_name, 'begun', count(*), array_agg(t.scheduled_at) FROM taken AS t GROUP BY t.type_name;
        ELSE
            DELETE FROM {ready} WHERE ctid = ANY (v_taken);
            IF p_statistics THEN
                INSERT INTO {tally} (at, type_name, what, number, since)
                VALUES (v_now, p_types[1], 'begun', cardinality(v_found), v_times);
            END IF;
        END IF;
        INSERT INTO {running} (job_id, token, type_name, queue, worker, leased_until, started_at, ordinal)
        SELECT f.id, p_token + f.n - 1, p_types[f.kind], p_queue_names[p_queues[f.kind]], p_worker,
            v_now + make_interval(secs => p_leases[f.kind]), v_now, CASE WHEN f.n > p_at_once THEN p_ordinal + f.n - 1 END
        FROM unnest(v_found, v_types) WITH ORDINALITY AS f (id, kind, n);
    END IF;
    IF v_resumed AND NOT v_more AND (
        {promote}(p_types, array_fill(NULL::timestamptz, ARRAY[v_number]), 1000, v_now) > 0
        OR {passed}(p_types, v_left, v_start_priority, v_start_time, v_start_id)
    ) THEN
        -- Claim the rest from the beginning; if nothing is left to claim, only for its first row.
        RETURN QUERY SELECT * FROM {claim}(
            p_worker, p_limit - cardinality(v_found), p_types, p_queues, v_left, p_leases, p_queue_names, p_queue_priorities,
            p_queue_caps, p_member_queues, p_member_types, p_cluster_cap, NULL, p_at_once - cardinality(v_found),
            p_ordinal + cardinality(v_found), p_token + cardinality(v_found), p_statistics
        );
    ELSE
        IF NOT v_more THEN
            SELECT least(min(due.scheduled_at), v_resume) INTO v_next FROM unnest(p_types) WITH ORDINALITY AS asked (type_name, n)
            CROSS JOIN LATERAL (
                SELECT l.scheduled_at FROM {later} AS l WHERE l.type_name = asked.type_name AND l.scheduled_at > v_now AND l.scheduled_at < 'infinity'
                ORDER BY l.scheduled_at LIMIT 1
            ) AS due
            WHERE asked.n <> ALL (v_shut);
        END IF;
        -- Many pages were read for few entries, so most entries are dead. Live entries need far
        -- fewer pages than this limit.
        RETURN QUERY SELECT NULL, NULL, NULL, NULL, NULL::integer, NULL, NULL::integer, NULL::double precision,
            NULL::double precision, NULL::integer, NULL::bigint, NULL::bigint, v_paused, NULL::timestamptz, NULL, NULL::integer, NULL, NULL, NULL::boolean,
            NULL::boolean,
            CASE WHEN v_resumed OR v_pages > v_number * (20 + p_limit / 20)
                THEN {scan_positions}(p_types, v_from_priority, v_from_time, v_from_id, v_since, v_until, v_again, v_moved_all, v_now) END,
            v_more, extract(epoch FROM v_next - v_now)::double precision, v_now;
    END IF;
    IF cardinality(v_found) = 0 THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT j.id::text, j.type_name, CASE WHEN j.chain_index > 0 THEN j.chain_id::text END, j.chain_type, j.chain_index, j.input::text,
        j.priority, date_part('epoch', j.created_at), date_part('epoch', j.scheduled_at), j.attempt + 1, p_token + f.n - 1,
        CASE WHEN f.n > p_at_once THEN p_ordinal + f.n - 1 END, j.last_error::text,
        -- One that Python does not have is left out: `expired` says what it means.
        CASE WHEN j.deadline BETWEEN {earliest} AND {latest} THEN j.deadline END, j.dedup_key,
        nullif(j.blockers_left, 0), j.trace_context, j.chain_trace_context, j.deadline IS NOT NULL AND j.deadline <= v_now,
        CASE WHEN j.last_attempt_at IS NOT NULL THEN true END,
        CASE WHEN j.blocker_count > 0 THEN (
            SELECT json_agg(json_build_array(b.chain_id, b.chain_type, b.status, b.output, b.trace_context) ORDER BY b.place)::text
            FROM {blockers_of}(j.id) AS b
        ) END,
        NULL::boolean, NULL::double precision, NULL::timestamptz
    FROM unnest(v_found, v_types) WITH ORDINALITY AS f (id, kind, n) JOIN {job} AS j ON j.id = f.id
    -- Sorted again: a job that was left out at first, because of a locked one, was found after
    -- others.
    ORDER BY p_queue_priorities[p_queues[f.kind]], j.priority, j.scheduled_at, j.id;
END $body$;

-- Extend leases; returns the ids of claims that are over. Locked rows of `running` (primary key)
-- are skipped: the claim is valid, and its own transaction or one that ends it has the lock.
CREATE OR REPLACE FUNCTION {renew}(p_ids text[], p_tokens bigint[], p_durations double precision[]) RETURNS TABLE (id text)
LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz := {clock};
BEGIN
    WITH free AS (
        SELECT r.job_id, asked.duration
        FROM unnest(p_ids::uuid[], p_tokens, p_durations) AS asked (id, token, duration)
        JOIN {running} AS r ON r.job_id = asked.id AND r.token = asked.token
        ORDER BY r.job_id FOR UPDATE OF r SKIP LOCKED
    )
    UPDATE {running} AS r SET leased_until = v_now + make_interval(secs => free.duration) FROM free WHERE r.job_id = free.job_id;
    RETURN QUERY
    SELECT asked.id::text FROM unnest(p_ids::uuid[], p_tokens) WITH ORDINALITY AS asked (id, token, n)
    WHERE NOT EXISTS (SELECT FROM {running} AS r WHERE r.job_id = asked.id AND r.token = asked.token)
    ORDER BY asked.n;
END $body$;

-- Lock a claim, or only look at it; false if it is over. Locks the row of `running` (primary key)
-- and not the job's own row: every transaction that ends a claim locks the former first, and one
-- that adds a dependent needs only the latter. Called for every phase, and each setting costs a
-- microsecond or two: this one setting of STEADY is enough for a plan by one key.
CREATE OR REPLACE FUNCTION {hold}(p_id uuid, p_token bigint, p_lock boolean) RETURNS boolean LANGUAGE plpgsql SET enable_seqscan TO off AS $body$
BEGIN
    IF p_lock THEN
        PERFORM FROM {running} WHERE job_id = p_id AND token = p_token FOR UPDATE;
    ELSE
        PERFORM FROM {running} WHERE job_id = p_id AND token = p_token;
    END IF;
    RETURN FOUND;
END $body$;

-- The claims whose lease has expired, or whose worker is dead, oldest first. Reads the table, which is
-- small, rather than its index: under an old snapshot it is not, and the pages of a table that is
-- read from end to end do not push others out of memory. Nothing is locked.
CREATE OR REPLACE FUNCTION {lapsed}(p_types text[], p_ignored uuid[], p_dead text[], p_now timestamptz) RETURNS uuid[]
LANGUAGE plpgsql SET plan_cache_mode TO force_generic_plan SET enable_indexscan TO off SET enable_bitmapscan TO off
SET max_parallel_workers_per_gather TO 0 SET jit TO off AS $body$
BEGIN
    RETURN array(
        SELECT r.job_id FROM {running} AS r
        WHERE (r.leased_until <= p_now OR r.worker = ANY (p_dead)) AND r.type_name = ANY (p_types) AND r.job_id <> ALL (p_ignored)
        ORDER BY r.leased_until, r.job_id
    );
END $body$;

-- Put back jobs whose lease has expired, or whose worker is dead, oldest first; returns their ids. A
-- job above the horizon of its worker has not begun: its attempt does not count, unless the server
-- has been restarted and may have lost where the horizon was. Scans `running`, and locks by primary
-- keys. Locked rows are skipped, also locked rows of `job`: a transaction that adds a dependent to one
-- job must not block the reaping of all others.
CREATE OR REPLACE FUNCTION {reap}(
    p_types text[], p_ignored text[], p_limit integer, p_error text, p_dead text[], p_code text, p_message text, p_statistics boolean
)
RETURNS SETOF text LANGUAGE plpgsql {steady} AS $body$
DECLARE
    v_now timestamptz := {clock};
    v_id uuid;
    v_ids uuid[] := '{}';
    v_lost uuid[];
BEGIN
    FOREACH v_id IN ARRAY {lapsed}(p_types, p_ignored::uuid[], p_dead, v_now) LOOP
        -- It may have been renewed, or claimed by another worker, since.
        PERFORM FROM {running} AS r WHERE r.job_id = v_id AND (r.leased_until <= v_now OR r.worker = ANY (p_dead))
        FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        PERFORM FROM {job} WHERE id = v_id FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        v_ids := v_ids || v_id;
        EXIT WHEN cardinality(v_ids) >= p_limit;
    END LOOP;
    IF cardinality(v_ids) = 0 THEN
        RETURN;
    END IF;
    WITH lost AS (
        UPDATE {job} AS j SET attempt = j.attempt + 1, last_attempt_at = r.started_at, last_error = p_error::json
        FROM {running} AS r WHERE r.job_id = ANY (v_ids) AND j.id = ANY (v_ids) AND j.id = r.job_id
            AND NOT EXISTS (
                SELECT FROM {worker} AS w
                WHERE w.id = r.worker AND w.horizon < r.ordinal AND w.server_started = {server_run}
            )
        RETURNING j.id, j.type_name, j.attempt, r.started_at, r.worker
    ), noted AS (
        INSERT INTO {attempt} (job_id, ended_at, number, begun_at, worker, outcome, code, message)
        SELECT l.id, v_now, l.attempt, l.started_at, l.worker, 'lost', p_code, p_message
        FROM lost AS l ON CONFLICT DO NOTHING
    ), counted AS (
        INSERT INTO {tally} (at, type_name, what, number, since)
        SELECT v_now, l.type_name, 'retried', count(*), array_agg(l.started_at)
        FROM lost AS l WHERE p_statistics GROUP BY l.type_name
    )
    SELECT array_agg(l.id) INTO v_lost FROM lost AS l;
    IF p_statistics AND cardinality(v_ids) > coalesce(cardinality(v_lost), 0) THEN
        PERFORM {uncount}(array(SELECT unnest(v_ids) EXCEPT SELECT unnest(v_lost)));
    END IF;
    PERFORM {trim_attempts}(v_ids);
    DELETE FROM {running} WHERE job_id = ANY (v_ids);
    PERFORM {enqueue}(v_ids, v_now);
    RETURN QUERY SELECT id::text FROM unnest(v_ids) AS id;
END $body$;
