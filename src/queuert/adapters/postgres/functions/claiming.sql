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

-- What is allowed: the room of each queue (null: no queue has a cap) and of the cluster (null: no cap), how
-- many jobs of each type (paused: none), which types are paused and until when, and the pauses themselves, if there are `pauses`.
-- `moment`: the time of the claim, taken after the locks. Locks: an advisory lock for each cap, which is
-- waited for. Seen is every pause that was committed before this; mostly, that is one look at an empty table.
CREATE OR REPLACE FUNCTION {allowed}(
    p_types text[], p_queues integer[], p_limits integer[], p_queue_names text[], p_queue_caps integer[], p_member_queues integer[],
    p_member_types text[], p_cluster_cap integer,
    OUT moment timestamptz, OUT rooms integer[], OUT total bigint, OUT left_over integer[], OUT shut integer[], OUT resume timestamptz,
    OUT paused text, OUT pauses boolean
) LANGUAGE plpgsql AS $body$
DECLARE
    v_capped boolean := array_remove(p_queue_caps, NULL) <> '{}';
    v_type integer;
BEGIN
    IF v_capped OR p_cluster_cap IS NOT NULL THEN
        SELECT CASE WHEN v_capped THEN found.rooms END, found.total INTO rooms, total
        FROM {cap_rooms}(p_queue_names, p_queue_caps, p_member_queues, p_member_types, p_cluster_cap) AS found;
    END IF;
    moment := {clock};
    left_over := p_limits;
    shut := '{}';
    pauses := EXISTS (SELECT FROM {pause});
    IF pauses THEN
        SELECT coalesce(found.shut, '{}'), found.until, found.paused INTO shut, resume, paused FROM {pauses_of}(
            p_types, ARRAY(SELECT p_queue_names[q.n] FROM unnest(p_queues) WITH ORDINALITY AS q (n, place) ORDER BY q.place), moment
        ) AS found;
        FOREACH v_type IN ARRAY shut LOOP
            left_over[v_type] := 0;
        END LOOP;
    END IF;
END $body$;

-- What is due, if there are scan positions: move due jobs to `ready`, `p_most` of each type, and find where each
-- type is scanned from: from its position, unless a job may have appeared before it; null: from the beginning.
-- `resumed`: at least one type is scanned from a position. `moved_all`: no due job is left in `later`. Locks:
-- rows of `later`, skipping locked ones (primary key). A type in `since` has positions: of it, only later jobs
-- are looked for in `later`.
CREATE OR REPLACE FUNCTION {resume}(
    p_types text[], p_left integer[], p_positions json, p_most integer, p_now timestamptz,
    OUT priorities integer[], OUT times timestamptz[], OUT ids uuid[], OUT since timestamptz[], OUT until timestamptz[],
    OUT again timestamptz[], OUT resumed boolean, OUT moved_all boolean
) LANGUAGE plpgsql AS $body$
DECLARE
    v_type integer;
    v_position json;
    v_old integer[] := '{}';
BEGIN
    priorities := array_fill(NULL::integer, ARRAY[cardinality(p_types)]);
    ids := array_fill(NULL::uuid, ARRAY[cardinality(p_types)]);
    times := array_fill(NULL::timestamptz, ARRAY[cardinality(p_types)]);
    since := times;
    until := times;
    again := times;
    resumed := false;
    FOR v_type IN 1..cardinality(p_types) LOOP
        v_position := p_positions -> p_types[v_type];
        IF (v_position ->> 5)::timestamptz > p_now THEN
            resumed := true;
            priorities[v_type] := v_position ->> 0;
            times[v_type] := v_position ->> 1;
            ids[v_type] := v_position ->> 2;
            again[v_type] := v_position ->> 5;
            IF (v_position ->> 4)::timestamptz > p_now THEN
                since[v_type] := v_position ->> 3;
                until[v_type] := v_position ->> 4;
            ELSE
                v_old := v_old || v_type;
            END IF;
        END IF;
    END LOOP;
    moved_all := {promote}(p_types, since, p_most, p_now) < p_most;
    IF cardinality(v_old) > 0 AND {passed}(p_types, p_left, priorities, times, ids) THEN
        resumed := cardinality(array_remove(until, NULL)) > 0;
        FOREACH v_type IN ARRAY v_old LOOP
            priorities[v_type] := NULL;
            times[v_type] := NULL;
            ids[v_type] := NULL;
            again[v_type] := NULL;
        END LOOP;
    END IF;
END $body$;

-- Take the first jobs of several types, if no limit matters. Returns what `take_in_turn` returns; `ids` is null
-- if another transaction has locked one of these. Locks: rows of `ready`, skipping locked ones: found along the
-- primary key without a lock, and locked by their places.
CREATE OR REPLACE FUNCTION {take_heads}(
    p_types text[], p_queues integer[], p_queue_priorities integer[], p_left integer[], p_wanted bigint,
    p_priorities integer[], p_times timestamptz[], p_ids uuid[],
    OUT places tid[], OUT ids uuid[], OUT kinds integer[], OUT since timestamptz[], OUT left_over integer[], OUT rooms integer[],
    OUT priorities integer[], OUT times timestamptz[], OUT last_ids uuid[]
) LANGUAGE plpgsql AS $body$
DECLARE
    v_priorities integer[];
    v_type integer;
    v_row integer;
    v_count integer;
BEGIN
    left_over := p_left;
    priorities := coalesce(p_priorities, array_fill(NULL::integer, ARRAY[cardinality(p_types)]));
    times := coalesce(p_times, array_fill(NULL::timestamptz, ARRAY[cardinality(p_types)]));
    last_ids := coalesce(p_ids, array_fill(NULL::uuid, ARRAY[cardinality(p_types)]));
    SELECT coalesce(array_agg(c.place), '{}'), coalesce(array_agg(c.id), '{}'), array_agg(c.kind), array_agg(c.priority), array_agg(c.scheduled_at)
    INTO places, ids, kinds, v_priorities, since
    FROM (
        SELECT r.place, r.id, t.n::integer AS kind, r.priority, r.scheduled_at
        FROM unnest(p_types, p_queues, p_priorities, p_times, p_ids) WITH ORDINALITY
            AS t (name, queue, from_priority, from_time, from_id, n)
        CROSS JOIN LATERAL (
            SELECT e.ctid AS place, e.priority, e.scheduled_at, e.id FROM {ready} AS e
            WHERE e.type_name = t.name
                AND (e.priority, e.scheduled_at, e.id) > (
                    coalesce(t.from_priority, -2147483648), coalesce(t.from_time, '-infinity'),
                    coalesce(t.from_id, '00000000-0000-0000-0000-000000000000')
                )
            ORDER BY e.priority, e.scheduled_at, e.id LIMIT p_wanted
        ) AS r
        ORDER BY p_queue_priorities[t.queue], r.priority, r.scheduled_at, r.id
        LIMIT p_wanted
    ) AS c;
    IF cardinality(ids) = 0 THEN
        RETURN;
    END IF;
    -- A place may have another row by now.
    IF (SELECT array_agg(locked.id ORDER BY locked.id) IS DISTINCT FROM (SELECT array_agg(c.id ORDER BY c.id) FROM unnest(ids) AS c (id))
        FROM (SELECT r.id FROM {ready} AS r WHERE r.ctid = ANY (places) FOR UPDATE SKIP LOCKED) AS locked)
    THEN
        ids := NULL;
        RETURN;
    END IF;
    FOR v_type, v_row, v_count IN
        SELECT k.kind, max(k.n), count(*) FROM unnest(kinds) WITH ORDINALITY AS k (kind, n) GROUP BY k.kind
    LOOP
        left_over[v_type] := left_over[v_type] - v_count;
        priorities[v_type] := v_priorities[v_row];
        times[v_type] := since[v_row];
        last_ids[v_type] := ids[v_row];
    END LOOP;
END $body$;

-- The next candidates of all types that may have more, in the order of claims, behind their positions. Locks
-- nothing. Primary key of `ready`.
CREATE OR REPLACE FUNCTION {next_ready}(
    p_types text[], p_queues integer[], p_queue_priorities integer[], p_left integer[], p_rooms integer[], p_most bigint,
    p_priorities integer[], p_times timestamptz[], p_ids uuid[],
    OUT places tid[], OUT ids uuid[], OUT kinds integer[], OUT priorities integer[], OUT times timestamptz[]
) LANGUAGE plpgsql AS $body$
BEGIN
    SELECT array_agg(c.place), array_agg(c.id), array_agg(c.kind), array_agg(c.priority), array_agg(c.scheduled_at)
    INTO places, ids, kinds, priorities, times
    FROM (
        SELECT r.place, r.id, t.n::integer AS kind, r.priority, r.scheduled_at
        FROM unnest(p_types, p_queues, p_left, p_priorities, p_times, p_ids) WITH ORDINALITY
            AS t (name, queue, left_over, from_priority, from_time, from_id, n)
        CROSS JOIN LATERAL (
            SELECT e.ctid AS place, e.priority, e.scheduled_at, e.id FROM {ready} AS e
            WHERE e.type_name = t.name
                AND (e.priority, e.scheduled_at, e.id) > (
                    coalesce(t.from_priority, -2147483648), coalesce(t.from_time, '-infinity'),
                    coalesce(t.from_id, '00000000-0000-0000-0000-000000000000')
                )
            ORDER BY e.priority, e.scheduled_at, e.id LIMIT p_most
        ) AS r
        WHERE t.left_over > 0 AND (p_rooms[t.queue] IS NULL OR p_rooms[t.queue] > 0)
        ORDER BY p_queue_priorities[t.queue], r.priority, r.scheduled_at, r.id
        LIMIT p_most
    ) AS c;
END $body$;

-- Take jobs one after the other: some are locked, or limits decide. Returns what was taken, with the moments
-- since when they were due; how many of each type may still be taken (`left_over`), and of each queue; and how
-- far each type was scanned: every row up to there is ours, or locked by another session. A job over its limit
-- may be within it if one chosen before it turns out to be locked: the position stays in front of it.
-- `ids`, `kinds` and `since` are in the order of the jobs, also if some were found after others because of a locked one.
--
-- Candidates are found without locks; then those that are free are locked. Locking many more rows than are
-- taken would leave nothing for other claims. If some were locked, it goes on behind them and does not read
-- them again: then a transaction that holds thousands of jobs does not slow down claims. Locks: rows of
-- `ready` by their places, skipping locked ones.
CREATE OR REPLACE FUNCTION {take_in_turn}(
    p_types text[], p_queues integer[], p_queue_priorities integer[], p_left integer[], p_rooms integer[], p_wanted bigint,
    p_widest bigint, p_priorities integer[], p_times timestamptz[], p_ids uuid[],
    OUT places tid[], OUT ids uuid[], OUT kinds integer[], OUT since timestamptz[], OUT left_over integer[], OUT rooms integer[],
    OUT priorities integer[], OUT times timestamptz[], OUT last_ids uuid[]
) LANGUAGE plpgsql AS $body$
DECLARE
    v_window bigint := p_wanted;
    v_first boolean := true;
    v_missed boolean;
    v_priorities integer[] := '{}';
    c record;
    v_chosen integer[];
    v_free integer[];
    v_type integer;
    v_row integer;
BEGIN
    places := '{}';
    ids := '{}';
    kinds := '{}';
    since := '{}';
    left_over := p_left;
    rooms := p_rooms;
    priorities := coalesce(p_priorities, array_fill(NULL::integer, ARRAY[cardinality(p_types)]));
    times := coalesce(p_times, array_fill(NULL::timestamptz, ARRAY[cardinality(p_types)]));
    last_ids := coalesce(p_ids, array_fill(NULL::uuid, ARRAY[cardinality(p_types)]));
    WHILE cardinality(ids) < p_wanted LOOP
        c := {next_ready}(p_types, p_queues, p_queue_priorities, left_over, rooms, v_window, priorities, times, last_ids);
        EXIT WHEN c.ids IS NULL;
        v_missed := false;
        v_chosen := '{}';
        FOR v_row IN 1..cardinality(c.ids) LOOP
            v_type := c.kinds[v_row];
            CONTINUE WHEN left_over[v_type] <= 0 OR rooms[p_queues[v_type]] <= 0;
            priorities[v_type] := c.priorities[v_row];
            times[v_type] := c.times[v_row];
            last_ids[v_type] := c.ids[v_row];
            IF NOT v_first THEN
                -- Some are locked: take them one by one, so that no row is locked without need.
                PERFORM FROM {ready} AS r WHERE r.ctid = c.places[v_row] AND r.id = c.ids[v_row] FOR UPDATE SKIP LOCKED;
                CONTINUE WHEN NOT FOUND;
            END IF;
            v_chosen := v_chosen || v_row;
            left_over[v_type] := left_over[v_type] - 1;
            rooms[p_queues[v_type]] := rooms[p_queues[v_type]] - 1;
            EXIT WHEN cardinality(ids) + cardinality(v_chosen) >= p_wanted;
        END LOOP;
        IF v_first THEN
            SELECT coalesce(array_agg(locked.n), '{}') INTO v_free FROM (
                SELECT chosen.n
                FROM unnest(v_chosen, ARRAY(SELECT c.places[n] FROM unnest(v_chosen) AS n), ARRAY(SELECT c.ids[n] FROM unnest(v_chosen) AS n))
                    AS chosen (n, place, id)
                JOIN {ready} AS r ON r.ctid = chosen.place AND r.id = chosen.id
                FOR UPDATE OF r SKIP LOCKED
            ) AS locked;
            v_missed := cardinality(v_free) < cardinality(v_chosen);
            v_first := NOT v_missed;
        END IF;
        FOREACH v_row IN ARRAY v_chosen LOOP
            v_type := c.kinds[v_row];
            IF NOT v_missed OR v_row = ANY (v_free) THEN
                places := places || c.places[v_row];
                ids := ids || c.ids[v_row];
                kinds := kinds || v_type;
                since := since || c.times[v_row];
                v_priorities := v_priorities || c.priorities[v_row];
            ELSE
                left_over[v_type] := left_over[v_type] + 1;
                rooms[p_queues[v_type]] := rooms[p_queues[v_type]] + 1;
            END IF;
        END LOOP;
        EXIT WHEN cardinality(c.ids) < v_window AND NOT v_missed;
        v_window := least(greatest(v_window * 2, 20), p_widest);
    END LOOP;
    IF NOT v_first THEN
        -- A job that was left out at first, because of a locked one, was found after others.
        SELECT coalesce(array_agg(f.id), '{}'), coalesce(array_agg(f.kind), '{}'), coalesce(array_agg(f.time), '{}') INTO ids, kinds, since
        FROM (
            SELECT f.id, f.kind, f.time FROM unnest(kinds, v_priorities, since, ids) AS f (kind, priority, time, id)
            ORDER BY p_queue_priorities[p_queues[f.kind]], f.priority, f.time, f.id
        ) AS f;
    END IF;
END $body$;

-- Take: insert the claims, and count their begins. Returns their number. Locks nothing that others wait for; the
-- caller has locked and deleted the rows of `ready` or `line`. The first job gets `p_token`, the next ones the
-- numbers after it. Jobs after the first `p_at_once` (null: all) get ordinals: the first job of the claim would
-- have `p_ordinal`.
CREATE OR REPLACE FUNCTION {begin_jobs}(
    p_ids uuid[], p_kinds integer[], p_since timestamptz[], p_lanes text[], p_types text[], p_queues integer[], p_queue_names text[],
    p_leases double precision[], p_worker text, p_token bigint, p_at_once integer, p_ordinal bigint, p_statistics boolean, p_now timestamptz
) RETURNS integer LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO {running} (job_id, token, type_name, queue, worker, leased_until, started_at, ordinal, lane)
    SELECT f.id, p_token + f.n - 1, p_types[f.kind], p_queue_names[p_queues[f.kind]], p_worker,
        p_now + make_interval(secs => p_leases[f.kind]), p_now, CASE WHEN f.n > p_at_once THEN p_ordinal + f.n - 1 END, f.lane
    FROM unnest(p_ids, p_kinds, p_lanes) WITH ORDINALITY AS f (id, kind, lane, n);
    IF p_statistics AND p_kinds[1] = ALL (p_kinds) THEN
        INSERT INTO {tally} (at, type_name, what, number, since)
        VALUES (p_now, p_types[p_kinds[1]], 'begun', cardinality(p_ids), p_since);
    ELSIF p_statistics THEN
        INSERT INTO {tally} (at, type_name, what, number, since)
        SELECT p_now, p_types[f.kind], 'begun', count(*), array_agg(f.time) FROM unnest(p_kinds, p_since) AS f (kind, time) GROUP BY 2;
    END IF;
    RETURN cardinality(p_ids);
END $body$;

-- Answer: the jobs of a claim, with the columns that differ from job to job; the caller knows the rest.
-- `chain_id` is null for the first job of a chain, `ran_before` for a job that no run has begun of. Times that
-- every job has are numbers: drivers take ten times as long to read a timestamp. For tokens and ordinals see
-- `begin_jobs`. In the order of `p_ids`. Locks nothing. Primary key.
--
-- In SQL, and stable, so that it becomes a part of the statement that calls it, with the snapshot of that: else
-- each row would be copied once more.
CREATE OR REPLACE FUNCTION {claimed_jobs}(
    p_ids uuid[], p_token bigint, p_at_once integer, p_ordinal bigint, p_now timestamptz
) RETURNS TABLE ({claimed_types}) LANGUAGE sql STABLE AS $body$
    SELECT j.id::text, j.type_name, CASE WHEN j.chain_index > 0 THEN j.chain_id::text END, j.chain_type, j.chain_index, j.input::text,
        j.priority, date_part('epoch', j.created_at), date_part('epoch', j.scheduled_at), j.attempt + 1, p_token + f.n - 1,
        CASE WHEN least(j.losses, j.attempt) >= {alone_after} THEN {not_begun} WHEN f.n > p_at_once THEN p_ordinal + f.n - 1 END,
        j.last_error::text,
        -- One that Python does not have is left out: `expired` says what it means.
        CASE WHEN j.deadline BETWEEN {earliest} AND {latest} THEN j.deadline END, j.dedup_key,
        nullif(j.blockers_left, 0), j.trace_context, j.chain_trace_context, j.deadline IS NOT NULL AND j.deadline <= p_now,
        CASE WHEN j.last_attempt_at IS NOT NULL THEN true END, least(j.losses, j.attempt),
        CASE WHEN j.blocker_count > 0 THEN (
            SELECT json_agg(json_build_array(b.chain_id, b.chain_type, b.status, b.output, b.trace_context) ORDER BY b.place)::text
            FROM {blockers_of}(j.id) AS b
        ) END,
        j.lane, NULL::boolean, NULL::double precision, NULL::timestamptz
    FROM unnest(p_ids) WITH ORDINALITY AS f (id, n) JOIN {job} AS j ON j.id = f.id
    ORDER BY f.n
$body$;

-- Claim ready jobs. The first row has `more`, `next_in`, `claimed_at`, in the column `blockers` the scan
-- positions if there are any, and in `last_error` the pauses that were in the way. The other rows are the jobs
-- in their order (`claimed_jobs`). `p_queues[i]` is the position of the queue of the type `p_types[i]`. For
-- tokens and ordinals see `begin_jobs`.
--
-- A cap counts the running jobs that were claimed through a queue of this name, by anybody. Rows of
-- older versions name no queue: they count if their type is a member (pairs of queue and type). All
-- caps together read `running` once; without a cap, it is not read.
--
-- Types that are paused are left out, also of `more` and `next_in`; `next_in` includes the end of
-- their pauses.
--
-- Locks, in this order: an advisory lock for each cap, which is waited for (`allowed`); rows of `later` (`due`);
-- rows of `ready` (`take_…`). Locked rows are skipped. Rows are found along the primary keys of these two
-- tables.
CREATE OR REPLACE FUNCTION {claim}(
    p_worker text, p_limit integer, p_types text[], p_queues integer[], p_limits integer[], p_leases double precision[],
    p_queue_names text[], p_queue_priorities integer[], p_queue_caps integer[], p_member_queues integer[],
    p_member_types text[], p_cluster_cap integer, p_positions text, p_at_once integer, p_ordinal bigint, p_token bigint,
    p_statistics boolean
) RETURNS TABLE ({claimed_types}) LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz := {clock};
    v_number integer := cardinality(p_types);
    -- What is allowed: see `allowed`.
    v_rooms integer[];
    v_total bigint;
    v_left integer[] := p_limits;
    v_shut integer[] := '{}';
    v_resume timestamptz;
    -- Where each type is scanned from: see `resume`.
    v_priorities integer[];
    v_times timestamptz[];
    v_ids uuid[];
    v_since timestamptz[];
    v_until timestamptz[];
    v_again timestamptz[];
    v_resumed boolean := false;
    v_moved_all boolean;
    v_most integer := greatest(1000, p_limit);
    v_wanted bigint;
    v_pages bigint;
    v_taken record;
    v_in_turn boolean := false;
    v_begun integer := 0;
    v_before integer := 0;
BEGIN
    -- What is allowed, and what is due. Mostly everything is allowed, and there are no positions.
    IF p_cluster_cap IS NOT NULL OR array_remove(p_queue_caps, NULL) <> '{}' OR EXISTS (SELECT FROM {pause}) THEN
        SELECT a.moment, a.rooms, a.total, a.left_over, a.shut, a.resume, a.paused
        INTO v_now, v_rooms, v_total, v_left, v_shut, v_resume, last_error
        FROM {allowed}(p_types, p_queues, p_limits, p_queue_names, p_queue_caps, p_member_queues, p_member_types, p_cluster_cap) AS a;
    END IF;
    IF p_positions IS NULL THEN
        v_moved_all := {promote}(p_types, NULL, v_most, v_now) < v_most;
    ELSE
        SELECT r.* INTO v_priorities, v_times, v_ids, v_since, v_until, v_again, v_resumed, v_moved_all
        FROM {resume}(p_types, v_left, p_positions::json, v_most, v_now) AS r;
    END IF;

    v_pages := pg_stat_get_xact_blocks_fetched({ready_key}::regclass);
    v_wanted := least(v_total, p_limit);
    IF v_rooms IS NULL AND v_number = 1 AND v_left[1] >= p_limit THEN
        -- One type and no cap: take the head of the index.
        SELECT coalesce(array_agg(head.place), '{}') AS places, coalesce(array_agg(head.id), '{}') AS ids, array_agg(1) AS kinds,
            array_agg(head.scheduled_at) AS since, ARRAY[v_left[1] - count(*)::integer] AS left_over, NULL::integer[] AS rooms,
            ARRAY[coalesce((array_agg(head.priority))[count(*)], v_priorities[1])] AS priorities,
            ARRAY[coalesce((array_agg(head.scheduled_at))[count(*)], v_times[1])] AS times,
            ARRAY[coalesce((array_agg(head.id))[count(*)], v_ids[1])] AS last_ids
        INTO v_taken
        FROM (
            SELECT e.ctid AS place, e.priority, e.scheduled_at, e.id FROM {ready} AS e WHERE e.type_name = p_types[1]
                AND (e.priority, e.scheduled_at, e.id) > (
                    coalesce(v_priorities[1], -2147483648), coalesce(v_times[1], '-infinity'),
                    coalesce(v_ids[1], '00000000-0000-0000-0000-000000000000')
                )
            ORDER BY e.priority, e.scheduled_at, e.id LIMIT v_wanted FOR UPDATE SKIP LOCKED
        ) AS head;
    ELSIF v_rooms IS NULL AND v_wanted <= ALL (v_left) THEN
        v_taken := {take_heads}(p_types, p_queues, p_queue_priorities, v_left, v_wanted, v_priorities, v_times, v_ids);
        v_in_turn := v_taken.ids IS NULL;
    ELSE
        v_in_turn := true;
    END IF;
    IF v_in_turn THEN
        v_taken := {take_in_turn}(
            p_types, p_queues, p_queue_priorities, v_left, v_rooms, v_wanted, v_most, v_priorities, v_times, v_ids
        );
    END IF;
    v_pages := pg_stat_get_xact_blocks_fetched({ready_key}::regclass) - v_pages;
    IF cardinality(v_taken.ids) > 0 THEN
        -- Rows of `ready` are never updated, and these are locked by us: their ctids are still right.
        DELETE FROM {ready} WHERE ctid = ANY (v_taken.places);
        v_begun := {begin_jobs}(
            v_taken.ids, v_taken.kinds, v_taken.since, NULL, p_types, p_queues, p_queue_names, p_leases, p_worker, p_token, p_at_once,
            p_ordinal, p_statistics, v_now
        );
    END IF;

    -- Count what is left.
    more := false;
    IF v_begun >= p_limit AND (p_cluster_cap IS NULL OR v_total > p_limit) THEN
        more := EXISTS (
            SELECT FROM unnest(p_types, p_queues, v_taken.left_over, v_taken.priorities, v_taken.times, v_taken.last_ids)
                AS t (name, queue, left_over, from_priority, from_time, from_id)
            WHERE t.left_over > 0 AND (v_taken.rooms[t.queue] IS NULL OR v_taken.rooms[t.queue] > 0) AND EXISTS (
                SELECT FROM {ready} AS e WHERE e.type_name = t.name
                    AND (e.priority, e.scheduled_at, e.id) > (
                        coalesce(t.from_priority, -2147483648), coalesce(t.from_time, '-infinity'),
                        coalesce(t.from_id, '00000000-0000-0000-0000-000000000000')
                    )
                ORDER BY e.priority, e.scheduled_at, e.id LIMIT 1
            )
        );
    END IF;
    IF v_resumed AND NOT more AND (
        {promote}(p_types, NULL, 1000, v_now) > 0
        OR {passed}(p_types, v_taken.left_over, v_priorities, v_times, v_ids)
    ) THEN
        -- Claim the rest from the beginning; if nothing is left to claim, only for its first row.
        RETURN QUERY SELECT * FROM {claim}(
            p_worker, p_limit - v_begun, p_types, p_queues, v_taken.left_over, p_leases, p_queue_names, p_queue_priorities,
            p_queue_caps, p_member_queues, p_member_types, p_cluster_cap, NULL, p_at_once,
            p_ordinal, p_token + v_begun, p_statistics
        );
        -- Those come first, and ordinals are in the order of the jobs.
        GET DIAGNOSTICS v_before = ROW_COUNT;
        v_before := v_before - 1;
        IF v_before > 0 AND v_begun > 0 THEN
            UPDATE {running} AS r SET ordinal = CASE WHEN v_before + f.n > p_at_once THEN p_ordinal + v_before + f.n - 1 END
            FROM unnest(v_taken.ids) WITH ORDINALITY AS f (id, n) WHERE r.job_id = f.id;
        END IF;
    ELSE
        IF NOT more THEN
            SELECT extract(epoch FROM least(min(due.scheduled_at), v_resume) - v_now)::double precision INTO next_in
            FROM unnest(p_types) WITH ORDINALITY AS asked (type_name, n)
            CROSS JOIN LATERAL (
                SELECT l.scheduled_at FROM {later} AS l WHERE l.type_name = asked.type_name AND l.scheduled_at > v_now AND l.scheduled_at < 'infinity'
                ORDER BY l.scheduled_at LIMIT 1
            ) AS due
            WHERE asked.n <> ALL (v_shut);
        END IF;
        -- Many pages were read for few entries, so most entries are dead. Live entries need far fewer pages.
        IF v_resumed OR v_pages > v_number * (20 + p_limit / 20) THEN
            blockers := {scan_positions}(
                p_types, v_taken.priorities, v_taken.times, v_taken.last_ids, v_since, v_until, v_again, v_moved_all, v_now
            );
        END IF;
        claimed_at := v_now;
        RETURN NEXT;
    END IF;
    IF v_begun > 0 THEN
        -- One that was lost too often has not begun before its worker says so (`begin_alone`).
        RETURN QUERY
        WITH jobs AS MATERIALIZED (
            SELECT * FROM {claimed_jobs}(v_taken.ids, p_token, p_at_once - v_before, p_ordinal + v_before, v_now)
        ), held_back AS (
            UPDATE {running} AS r SET ordinal = j.ordinal FROM jobs AS j WHERE j.ordinal = {not_begun} AND r.job_id = j.id::uuid
        )
        SELECT * FROM jobs;
    END IF;
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

-- A job that was lost too often begins now, alone in its worker; false if the claim is over. Locks the
-- row of `running` (primary key).
CREATE OR REPLACE FUNCTION {begin_alone}(p_id uuid, p_token bigint) RETURNS boolean LANGUAGE plpgsql {steady} AS $body$
BEGIN
    UPDATE {running} SET ordinal = NULL WHERE job_id = p_id AND token = p_token;
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
-- has been restarted and may have lost where the horizon was. `p_delays`: for each type, `p_kinds` seconds:
-- how long its jobs wait after their first loss, their second one, and so on; the last one is for all
-- later ones, and without a delay a job is due as before. Scans `running`, and locks by primary
-- keys. Locked rows are skipped, also locked rows of `job`: a transaction that adds a dependent to one
-- job must not block the reaping of all others.
CREATE OR REPLACE FUNCTION {reap}(
    p_types text[], p_ignored text[], p_limit integer, p_error text, p_dead text[], p_code text, p_message text, p_statistics boolean,
    p_delays double precision[], p_kinds integer
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
        UPDATE {job} AS j SET attempt = j.attempt + 1, last_attempt_at = r.started_at, last_error = p_error::json,
            -- An older version starts the attempts again without the losses.
            losses = least(j.losses, j.attempt) + 1,
            scheduled_at = coalesce(
                v_now + make_interval(secs => nullif(p_delays[
                    (array_position(p_types, j.type_name) - 1) * p_kinds + least(j.losses + 1, j.attempt + 1, p_kinds)
                ], 0)),
                j.scheduled_at
            )
        FROM {running} AS r WHERE r.job_id = ANY (v_ids) AND j.id = ANY (v_ids) AND j.id = r.job_id
            AND r.ordinal IS DISTINCT FROM {not_begun} AND NOT EXISTS (
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
        SELECT v_now, l.type_name, 'lost', count(*), array_agg(l.started_at)
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
