-- claim, renew, hold, reap.

-- Move what has fallen due from `later` to `ready`, the longest due first. Bounded for each type, so that a great many jobs that fall
-- due at one moment do not hold up one claim: the next claims move the rest. Rows that somebody holds are left. `p_since`: for each type,
-- what was due by then has been looked at lately. Answers with how many it has moved: with the limit, there may be more.
CREATE FUNCTION {promote}(p_types text[], p_since timestamptz[], p_limit bigint, p_now timestamptz) RETURNS bigint LANGUAGE plpgsql AS $body$
DECLARE
    v_moved bigint;
BEGIN
    WITH due AS (
        DELETE FROM {later} WHERE ctid = ANY (ARRAY(
            SELECT l.ctid FROM unnest(p_types, p_since) AS asked (type_name, since)
            CROSS JOIN LATERAL (
                SELECT e.ctid FROM {later} AS e
                WHERE e.type_name = asked.type_name AND e.scheduled_at > coalesce(asked.since, '-infinity') AND e.scheduled_at <= p_now
                ORDER BY e.scheduled_at, e.id LIMIT p_limit FOR UPDATE SKIP LOCKED
            ) AS l
        ))
        RETURNING type_name, priority, scheduled_at, id
    )
    INSERT INTO {ready} (type_name, priority, scheduled_at, id) SELECT type_name, priority, scheduled_at, id FROM due;
    GET DIAGNOSTICS v_moved = ROW_COUNT;
    RETURN v_moved;
END $body$;

-- A job of this type uses up room in every queue that counts it (or gives it back, with 1). A queue without a cap has NULL.
CREATE FUNCTION {change_room}(p_room integer[], p_by integer, p_member_queues integer[], p_member_types text[], p_type text)
RETURNS integer[] LANGUAGE plpgsql IMMUTABLE AS $body$
BEGIN
    FOR v_member IN 1..cardinality(p_member_types) LOOP
        IF p_member_types[v_member] = p_type THEN
            p_room[p_member_queues[v_member]] := p_room[p_member_queues[v_member]] + p_by;
        END IF;
    END LOOP;
    RETURN p_room;
END $body$;

-- Marks. The entries of claimed jobs stay at the head of the index for as long as somebody keeps an old snapshot, and every claim has to
-- step over all of them. One that met many says how far it came in each type, and the next ones begin there: for ten times as long as it took,
-- ten seconds at most, and only as long as that fills their limit. So nothing waits while a worker is idle; but what comes in before a mark, a
-- more urgent job for one, may see others go first for that time.
--
-- For each type: where to begin, what was due by then has been moved from `later` (all of it, `p_moved_all`), and until when. A type of which nothing was taken
-- begins at its first job (a little before it, in case its id changes hands), or behind everything if it has none.
CREATE FUNCTION {marks}(
    p_types text[], p_priorities integer[], p_times timestamptz[], p_ids uuid[], p_since timestamptz[], p_until timestamptz[],
    p_moved_all boolean, p_now timestamptz
) RETURNS text LANGUAGE plpgsql AS $body$
DECLARE
    v_since timestamptz := CASE WHEN p_moved_all THEN p_now ELSE '-infinity' END;
    v_until timestamptz := p_now + least(10 * ({clock} - p_now), interval '10 seconds');
BEGIN
    RETURN (
        SELECT json_object_agg(m.name, json_build_array(
            mark.priority, mark.time, mark.id, coalesce(m.since, v_since), coalesce(m.until, v_until)
        ))
        FROM unnest(p_types, p_priorities, p_times, p_ids, p_since, p_until) AS m (name, priority, time, id, since, until)
        CROSS JOIN LATERAL (
            SELECT m.priority, m.time, m.id::text WHERE m.time > '-infinity'
            UNION ALL
            (SELECT e.priority, e.scheduled_at, left(e.id::text, 24) || '000000000000' FROM {ready} AS e
                WHERE e.type_name = m.name ORDER BY e.priority, e.scheduled_at, e.id LIMIT 1)
            UNION ALL
            SELECT 2147483647, 'infinity', 'ffffffff-ffff-ffff-ffff-ffffffffffff'
            LIMIT 1
        ) AS mark (priority, time, id)
    );
END $body$;

-- The first row is a head with `more`, `next_in`, `claimed_at` and, in the place of `blockers`, marks if there are any; the others are the jobs, in their order, with what differs from job
-- to job: the rest of a claimed job follows from these. `chain_id` is null for the first job of a chain. Times that every job has
-- are numbers: drivers take ten times as long to read a timestamp.
-- `p_queues[i]` is the position of the queue that the type `p_types[i]` belongs to. Members are given as pairs of queue and type.
CREATE FUNCTION {claim}(
    p_worker text, p_limit integer, p_types text[], p_queues integer[], p_limits integer[], p_leases double precision[],
    p_queue_names text[], p_queue_priorities integer[], p_queue_caps integer[], p_member_queues integer[],
    p_member_types text[], p_cluster_cap integer, p_marks text
) RETURNS TABLE (
    id text, type_name text, chain_id text, chain_type text, chain_index integer, input text, priority integer,
    created_at double precision, scheduled_at double precision, attempt integer, token bigint, last_error text, deadline timestamptz,
    dedup_key text, blockers_left integer, trace_context text, chain_trace_context text, expired boolean, blockers text,
    more boolean, next_in double precision, claimed_at timestamptz
) LANGUAGE plpgsql {steady} AS $body$
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
    -- How far we have looked at each type: everything up to there is ours, or was held by somebody else.
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
    -- Caps: whoever is subject to one waits here for the others, one lock after the other in the order of their numbers (two names may
    -- have one number). Counted in a later statement, with a newer snapshot.
    FOR v_lock IN
        SELECT DISTINCT hashtext(named.name) FROM (
            SELECT '{lock_name}cluster' AS name WHERE p_cluster_cap IS NOT NULL
            UNION ALL
            SELECT '{lock_name}queue.' || q.name FROM unnest(p_queue_names, p_queue_caps) AS q (name, cap) WHERE q.cap IS NOT NULL
        ) AS named ORDER BY 1
    LOOP
        PERFORM pg_advisory_xact_lock({lock_space}, v_lock);
    END LOOP;
    v_now := {clock};
    IF p_cluster_cap IS NOT NULL THEN
        SELECT greatest(0, p_cluster_cap - count(*)) INTO v_total FROM {running};
    END IF;
    IF v_capped THEN
        SELECT array_agg(
            CASE WHEN q.cap IS NOT NULL THEN greatest(0, q.cap - (
                SELECT count(*) FROM {running} AS r
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
    v_moved_all := {promote}(p_types, v_since, greatest(1000, p_limit), v_now) < greatest(1000, p_limit);
    v_pages := pg_stat_get_xact_blocks_fetched({ready_key}::regclass);
    IF NOT v_capped AND v_number = 1 AND p_limits[1] >= p_limit THEN
        -- One type and no cap: the head of the index is what we want.
        SELECT coalesce(array_agg(head.place), '{}'), coalesce(array_agg(head.id), '{}'), coalesce(array_agg(1), '{}'),
            array_agg(head.priority), array_agg(head.scheduled_at)
        INTO v_taken, v_found, v_types, v_priorities, v_times
        FROM (
            SELECT e.ctid AS place, e.priority, e.scheduled_at, e.id FROM {ready} AS e WHERE e.type_name = p_types[1]
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
        -- Several types, and none has a limit that could matter: the first candidates of all, if nobody holds one of them.
        SELECT array_agg(c.place), array_agg(c.id), array_agg(c.kind), array_agg(c.priority), array_agg(c.scheduled_at)
        INTO v_places, v_ids, v_kinds, v_priorities, v_times
        FROM (
            SELECT r.place, r.id, t.n::integer AS kind, r.priority, r.scheduled_at
            FROM unnest(p_types, p_queues, v_mark_priority, v_mark_time, v_mark_id) WITH ORDINALITY
                AS t (name, queue, mark_priority, mark_time, mark_id, n)
            CROSS JOIN LATERAL (
                SELECT e.ctid AS place, e.priority, e.scheduled_at, e.id FROM {ready} AS e
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
            FROM (SELECT r.id FROM {ready} AS r WHERE r.ctid = ANY (v_places) FOR UPDATE SKIP LOCKED) AS locked;
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
        -- The next candidates in their order, unlocked; then those of them that nobody holds, locked. Holding many more rows than are taken
        -- would leave other workers with nothing to claim. If some were held, go on behind them: they are not looked at again, however
        -- many there are, so that a transaction that holds thousands of jobs makes nobody else slow.
        v_window := v_wanted;
        WHILE cardinality(v_found) < v_wanted LOOP
            SELECT array_agg(c.place), array_agg(c.id), array_agg(c.kind), array_agg(c.priority), array_agg(c.scheduled_at)
            INTO v_places, v_ids, v_kinds, v_priorities, v_times
            FROM (
                SELECT r.place, r.id, t.n::integer AS kind, r.priority, r.scheduled_at
                FROM unnest(p_types, p_queues, v_left, v_mark_priority, v_mark_time, v_mark_id) WITH ORDINALITY
                    AS t (name, queue, left_over, mark_priority, mark_time, mark_id, n)
                CROSS JOIN LATERAL (
                    SELECT e.ctid AS place, e.priority, e.scheduled_at, e.id FROM {ready} AS e
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
                -- What is over its limit now may not be, if one that was chosen before turns out to be held: the mark stays in front of it.
                CONTINUE WHEN v_left[v_type] <= 0 OR v_room[p_queues[v_type]] <= 0;
                v_mark_priority[v_type] := v_priorities[v_row];
                v_mark_time[v_type] := v_times[v_row];
                v_mark_id[v_type] := v_ids[v_row];
                IF NOT v_first THEN
                    -- Some are held: one by one, so that none is locked in vain.
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
                IF v_capped THEN
                    v_room := {change_room}(v_room, -1, p_member_queues, p_member_types, p_types[v_type]);
                END IF;
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
                        IF v_capped THEN
                            v_room := {change_room}(v_room, 1, p_member_queues, p_member_types, p_types[v_type]);
                        END IF;
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
            SELECT FROM unnest(p_types, p_queues, v_left, v_mark_priority, v_mark_time, v_mark_id)
                AS t (name, queue, left_over, mark_priority, mark_time, mark_id)
            WHERE t.left_over > 0 AND (v_room[t.queue] IS NULL OR v_room[t.queue] > 0) AND EXISTS (
                SELECT FROM {ready} AS e WHERE e.type_name = t.name
                    AND (e.priority, e.scheduled_at, e.id) > (t.mark_priority, t.mark_time, t.mark_id)
                ORDER BY e.priority, e.scheduled_at, e.id LIMIT 1
            )
        );
    END IF;
    IF cardinality(v_found) > 0 THEN
        -- Rows of `ready` are never updated, and these are ours: they are still where we found them.
        DELETE FROM {ready} WHERE ctid = ANY (v_taken);
        v_tokens := ARRAY(SELECT nextval({token_name}) FROM unnest(v_found));
        INSERT INTO {running} (job_id, token, type_name, worker, leased_until, started_at)
        SELECT f.id, f.token, p_types[f.kind], p_worker, v_now + make_interval(secs => p_leases[f.kind]), v_now
        FROM unnest(v_found, v_types, v_tokens) AS f (id, kind, token);
    END IF;
    IF v_marked AND NOT v_more THEN
        -- The rest from the beginning; if there is none, for the sake of the head alone.
        RETURN QUERY SELECT * FROM {claim}(
            p_worker, p_limit - cardinality(v_found), p_types, p_queues, v_left, p_leases, p_queue_names, p_queue_priorities,
            p_queue_caps, p_member_queues, p_member_types, p_cluster_cap, NULL
        );
    ELSE
        IF NOT v_more THEN
            SELECT min(due.scheduled_at) INTO v_next FROM unnest(p_types) AS asked (type_name)
            CROSS JOIN LATERAL (
                SELECT l.scheduled_at FROM {later} AS l WHERE l.type_name = asked.type_name AND l.scheduled_at > v_now
                ORDER BY l.scheduled_at LIMIT 1
            ) AS due;
        END IF;
        -- Many pages for few entries: they are dead. The limits are far above what living ones take.
        RETURN QUERY SELECT NULL, NULL, NULL, NULL, NULL::integer, NULL, NULL::integer, NULL::double precision,
            NULL::double precision, NULL::integer, NULL::bigint, NULL, NULL::timestamptz, NULL, NULL::integer, NULL, NULL, NULL::boolean,
            CASE WHEN v_marked OR v_pages > v_number * (20 + p_limit / 20)
                THEN {marks}(p_types, v_mark_priority, v_mark_time, v_mark_id, v_since, v_until, v_moved_all, v_now) END,
            v_more, extract(epoch FROM v_next - v_now)::double precision, v_now;
    END IF;
    IF cardinality(v_found) = 0 THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT j.id::text, j.type_name, CASE WHEN j.chain_index > 0 THEN j.chain_id::text END, j.chain_type, j.chain_index, j.input::text,
        j.priority, date_part('epoch', j.created_at), date_part('epoch', j.scheduled_at), j.attempt + 1, f.token, j.last_error::text, j.deadline, j.dedup_key,
        nullif(j.blockers_left, 0), j.trace_context, j.chain_trace_context, j.deadline IS NOT NULL AND j.deadline <= v_now,
        CASE WHEN j.blocker_count > 0 THEN (SELECT json_agg(b.* ORDER BY b.place)::text FROM {blockers_of}(j.id) AS b) END,
        NULL::boolean, NULL::double precision, NULL::timestamptz
    FROM unnest(v_found, v_types, v_tokens) AS f (id, kind, token) JOIN {job} AS j ON j.id = f.id
    -- Not as they were found: one that a held one had crowded out at first comes to its place only here.
    ORDER BY p_queue_priorities[p_queues[f.kind]], j.priority, j.scheduled_at, j.id;
END $body$;

-- The ids of the claims that are over. A row that somebody holds is skipped: it is owned, by us or by whoever is about to end it.
CREATE FUNCTION {renew}(p_ids text[], p_tokens bigint[], p_durations double precision[]) RETURNS TABLE (id text)
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

-- Lock a claim, or only look at it; false if it is over. Only the in-flight row, which whoever would end the claim comes to first. Whoever
-- begins to wait for the chain needs the job's own row: he does not wait for the holder. It is called for every phase, and each setting takes a
-- microsecond or two: of {steady}, this is what the plan for one key depends on.
CREATE FUNCTION {hold}(p_id text, p_token bigint, p_lock boolean) RETURNS boolean LANGUAGE plpgsql SET enable_seqscan TO off AS $body$
BEGIN
    IF p_lock THEN
        PERFORM FROM {running} WHERE job_id = p_id::uuid AND token = p_token FOR UPDATE;
    ELSE
        PERFORM FROM {running} WHERE job_id = p_id::uuid AND token = p_token;
    END IF;
    RETURN FOUND;
END $body$;

-- The ids of the jobs that were put back, oldest lease first. The job's own row is skipped too, if somebody holds it: a start that
-- waits for this chain does so until its transaction ends, and must not keep the reaper from all the others.
CREATE FUNCTION {reap}(p_types text[], p_ignored text[], p_limit integer, p_error text) RETURNS SETOF text
LANGUAGE plpgsql {steady} AS $body$
DECLARE
    v_now timestamptz := {clock};
    v_id uuid;
    v_ids uuid[] := '{}';
BEGIN
    FOR v_id IN
        SELECT r.job_id FROM {running} AS r
        WHERE r.leased_until <= v_now AND r.type_name = ANY (p_types) AND r.job_id <> ALL (p_ignored::uuid[])
        ORDER BY r.leased_until, r.job_id FOR UPDATE SKIP LOCKED
    LOOP
        PERFORM FROM {job} WHERE id = v_id FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        v_ids := v_ids || v_id;
        EXIT WHEN cardinality(v_ids) >= p_limit;
    END LOOP;
    IF cardinality(v_ids) = 0 THEN
        RETURN;
    END IF;
    UPDATE {job} AS j SET attempt = j.attempt + 1, last_attempt_at = r.started_at, last_error = p_error::json
    FROM {running} AS r WHERE r.job_id = ANY (v_ids) AND j.id = ANY (v_ids) AND j.id = r.job_id;
    DELETE FROM {running} WHERE job_id = ANY (v_ids);
    PERFORM {launch}(v_ids, v_now);
    RETURN QUERY SELECT id::text FROM unnest(v_ids) AS id;
END $body$;
