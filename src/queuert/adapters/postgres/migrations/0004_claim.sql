-- claim, renew, reap.

-- Move what has fallen due from `later` to `ready`, the longest due first. Bounded for each type, so that a great many jobs that fall
-- due at one moment do not hold up one claim: the next claims move the rest. Rows that somebody holds are left.
CREATE FUNCTION {promote}(p_types text[], p_now timestamptz) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    WITH due AS (
        DELETE FROM {later} WHERE ctid = ANY (ARRAY(
            SELECT l.ctid FROM unnest(p_types) AS asked (type_name)
            CROSS JOIN LATERAL (
                SELECT e.ctid FROM {later} AS e
                WHERE e.type_name = asked.type_name AND e.scheduled_at <= p_now
                ORDER BY e.scheduled_at, e.id LIMIT 1000 FOR UPDATE SKIP LOCKED
            ) AS l
        ))
        RETURNING type_name, priority, scheduled_at, id
    )
    INSERT INTO {ready} (type_name, priority, scheduled_at, id) SELECT type_name, priority, scheduled_at, id FROM due;
END $body$;

-- The next jobs to claim, in their order, up to `p_number`: not locked, and without those in `p_passed`. `p_had` are the types (by their
-- position) of jobs that were chosen before, `p_room` what is left in each queue (NULL: no cap).
CREATE FUNCTION {candidates}(
    p_types text[], p_queues integer[], p_limits integer[], p_queue_priorities integer[], p_room integer[],
    p_member_queues integer[], p_member_types text[], p_passed uuid[], p_had integer[], p_number bigint
) RETURNS TABLE (id uuid, type_position integer) LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    v_next record;
    v_left integer[] := p_limits;
    v_room integer[] := p_room;
    v_had integer;
    v_found bigint := 0;
BEGIN
    FOREACH v_had IN ARRAY p_had LOOP
        v_left[v_had] := v_left[v_had] - 1;
        v_room := {less_room}(v_room, p_member_queues, p_member_types, p_types[v_had]);
    END LOOP;
    FOR v_next IN
        SELECT t.n::integer AS n, t.queue, r.id
        FROM unnest(p_types, p_queues) WITH ORDINALITY AS t (name, queue, n)
        JOIN unnest(p_queue_priorities) WITH ORDINALITY AS q (priority, n) ON q.n = t.queue
        CROSS JOIN LATERAL (
            SELECT e.priority, e.scheduled_at, e.id FROM {ready} AS e
            WHERE e.type_name = t.name AND e.id <> ALL (p_passed)
            ORDER BY e.priority, e.scheduled_at, e.id LIMIT p_number
        ) AS r
        WHERE v_left[t.n] > 0 AND (v_room[t.queue] IS NULL OR v_room[t.queue] > 0)
        ORDER BY q.priority, r.priority, r.scheduled_at, r.id
    LOOP
        EXIT WHEN v_found >= p_number;
        CONTINUE WHEN v_left[v_next.n] <= 0 OR v_room[v_next.queue] <= 0;
        v_left[v_next.n] := v_left[v_next.n] - 1;
        IF p_room IS NOT NULL THEN
            v_room := {less_room}(v_room, p_member_queues, p_member_types, p_types[v_next.n]);
        END IF;
        v_found := v_found + 1;
        id := v_next.id;
        type_position := v_next.n;
        RETURN NEXT;
    END LOOP;
END $body$;

-- A job of this type uses up room in every queue that counts it.
CREATE FUNCTION {less_room}(p_room integer[], p_member_queues integer[], p_member_types text[], p_type text)
RETURNS integer[] LANGUAGE sql IMMUTABLE AS $body$
    SELECT array_agg(room.left_over - (
        SELECT count(*) FROM unnest(p_member_queues, p_member_types) AS m (queue, type_name)
        WHERE m.queue = room.n AND m.type_name = p_type
    )::integer ORDER BY room.n)
    FROM unnest(p_room) WITH ORDINALITY AS room (left_over, n)
$body$;

-- The first row is a head with `more` and `next_in`; the others are the jobs, in their order.
-- `p_queues[i]` is the position of the queue that the type `p_types[i]` belongs to. Members are given as pairs of queue and type.
CREATE FUNCTION {claim}(
    p_worker text, p_limit integer, p_types text[], p_queues integer[], p_limits integer[], p_leases double precision[],
    p_queue_names text[], p_queue_priorities integer[], p_queue_caps integer[], p_member_queues integer[],
    p_member_types text[], p_cluster_cap integer
) RETURNS TABLE ({claimed_types}) LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_capped boolean := EXISTS (SELECT FROM unnest(p_queue_caps) AS cap WHERE cap IS NOT NULL);
    v_room integer[];
    v_total bigint := p_limit;
    v_more boolean := false;
    v_next timestamptz;
    v_candidates uuid[];
    v_candidate_types integer[];
    v_free uuid[];
    v_found uuid[] := '{}';
    v_types integer[] := '{}';
    v_passed uuid[] := '{}';
BEGIN
    -- Caps: whoever is subject to one waits here for the others. Counted in a later statement, with a newer snapshot.
    IF p_cluster_cap IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock({lock_space}, hashtext('{lock_name}'));
    END IF;
    IF v_capped THEN
        PERFORM pg_advisory_xact_lock({lock_space}, hashtext('{lock_name}' || capped.name))
        FROM (
            SELECT DISTINCT q.name FROM unnest(p_queue_names, p_queue_caps) AS q (name, cap)
            WHERE q.cap IS NOT NULL ORDER BY q.name
        ) AS capped;
    END IF;
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
    PERFORM {promote}(p_types, v_now);
    IF NOT v_capped AND cardinality(p_types) = 1 AND p_limits[1] >= p_limit THEN
        -- One type and no cap: the head of the index is what we want.
        SELECT array_agg(head.id ORDER BY head.priority, head.scheduled_at, head.id), array_agg(1) INTO v_found, v_types
        FROM (
            SELECT e.priority, e.scheduled_at, e.id FROM {ready} AS e WHERE e.type_name = p_types[1]
            ORDER BY e.priority, e.scheduled_at, e.id LIMIT least(v_total, p_limit) FOR UPDATE SKIP LOCKED
        ) AS head;
    ELSE
        -- The candidates in their order, unlocked; then those of them that nobody holds, locked. Holding many more rows than are taken would
        -- leave other workers with nothing to claim. If some were held, look further, past them.
        WHILE cardinality(v_found) < least(v_total, p_limit) LOOP
            SELECT array_agg(c.id), array_agg(c.type_position) INTO v_candidates, v_candidate_types
            FROM {candidates}(
                p_types, p_queues, p_limits, p_queue_priorities, v_room, p_member_queues, p_member_types, v_found || v_passed,
                v_types, least(v_total, p_limit) - cardinality(v_found)
            ) AS c;
            EXIT WHEN v_candidates IS NULL;
            SELECT array_agg(locked.id) INTO v_free FROM (
                SELECT r.id FROM unnest(v_candidates, v_candidate_types) AS c (id, type_position)
                JOIN {job} AS j ON j.id = c.id
                JOIN {ready} AS r ON r.type_name = p_types[c.type_position] AND r.priority = j.priority
                    AND r.scheduled_at = j.scheduled_at AND r.id = c.id
                FOR UPDATE OF r SKIP LOCKED
            ) AS locked;
            v_free := coalesce(v_free, '{}');
            SELECT v_found || coalesce(array_agg(c.id ORDER BY c.n), '{}'), v_types || coalesce(array_agg(c.type_position ORDER BY c.n), '{}')
            INTO v_found, v_types
            FROM unnest(v_candidates, v_candidate_types) WITH ORDINALITY AS c (id, type_position, n) WHERE c.id = ANY (v_free);
            EXIT WHEN cardinality(v_free) = cardinality(v_candidates);
            v_passed := v_passed || array(SELECT c FROM unnest(v_candidates) AS c WHERE c <> ALL (v_free));
        END LOOP;
    END IF;
    v_found := coalesce(v_found, '{}');
    v_types := coalesce(v_types, '{}');
    -- One that somebody holds counts as waiting too: whether he will take it is not known.
    IF cardinality(v_found) >= p_limit AND v_total > p_limit OR p_cluster_cap IS NULL AND cardinality(v_found) >= p_limit THEN
        v_more := EXISTS (SELECT FROM {candidates}(
            p_types, p_queues, p_limits, p_queue_priorities, v_room, p_member_queues, p_member_types, v_found, v_types, 1
        ));
    END IF;
    IF NOT v_more THEN
        SELECT min(due.scheduled_at) INTO v_next FROM unnest(p_types) AS asked (type_name)
        CROSS JOIN LATERAL (
            SELECT l.scheduled_at FROM {later} AS l WHERE l.type_name = asked.type_name AND l.scheduled_at > v_now
            ORDER BY l.scheduled_at LIMIT 1
        ) AS due;
    END IF;
    RETURN QUERY SELECT {no_columns}, v_more, extract(epoch FROM v_next - v_now)::double precision, NULL::boolean, NULL::text;
    IF cardinality(v_found) = 0 THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH found AS MATERIALIZED (
        SELECT f.id, f.n, p_types[f.type_position] AS type_name, p_leases[f.type_position] AS lease, j.priority, j.scheduled_at
        FROM unnest(v_found, v_types) WITH ORDINALITY AS f (id, type_position, n) JOIN {job} AS j ON j.id = f.id
    ), gone AS (
        DELETE FROM {ready} AS r USING found
        WHERE r.type_name = found.type_name AND r.priority = found.priority AND r.scheduled_at = found.scheduled_at
            AND r.id = found.id
    ), r AS (
        INSERT INTO {running} (job_id, token, type_name, worker, leased_until, started_at)
        SELECT found.id, nextval('{token}'), found.type_name, p_worker, v_now + make_interval(secs => found.lease), v_now
        FROM found ORDER BY found.n
        RETURNING *
    )
    SELECT {job_columns}, NULL::boolean, NULL::double precision, j.deadline IS NOT NULL AND j.deadline <= v_now,
        CASE WHEN j.blocker_count > 0 THEN (SELECT json_agg(b.* ORDER BY b.place)::text FROM {blockers_of}(j.id) AS b) END
    FROM found JOIN r ON r.job_id = found.id JOIN {job} AS j ON j.id = found.id
    ORDER BY found.n;
END $body$;

-- The ids of the claims that are over. A row that somebody holds is skipped: it is owned, by us or by whoever is about to end it.
CREATE FUNCTION {renew}(p_ids text[], p_tokens bigint[], p_durations double precision[]) RETURNS TABLE (id text)
LANGUAGE plpgsql AS $body$
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

-- The ids of the jobs that were put back, oldest lease first.
CREATE FUNCTION {reap}(p_types text[], p_ignored text[], p_limit integer, p_error text) RETURNS SETOF text
LANGUAGE plpgsql AS $body$
DECLARE
    v_now timestamptz := {clock};
    v_ids uuid[];
BEGIN
    SELECT array_agg(ended.job_id ORDER BY ended.leased_until, ended.job_id) INTO v_ids FROM (
        SELECT r.job_id, r.leased_until FROM {running} AS r
        WHERE r.leased_until <= v_now AND r.type_name = ANY (p_types) AND r.job_id <> ALL (p_ignored::uuid[])
        ORDER BY r.leased_until, r.job_id LIMIT p_limit FOR UPDATE SKIP LOCKED
    ) AS ended;
    IF v_ids IS NULL THEN
        RETURN;
    END IF;
    PERFORM FROM {job} WHERE id = ANY (v_ids) ORDER BY id FOR NO KEY UPDATE;
    UPDATE {job} AS j SET attempt = j.attempt + 1, last_attempt_at = r.started_at, last_error = p_error::json
    FROM {running} AS r WHERE r.job_id = ANY (v_ids) AND j.id = r.job_id;
    DELETE FROM {running} WHERE job_id = ANY (v_ids);
    PERFORM {launch}(v_ids, v_now);
    RETURN QUERY SELECT id::text FROM unnest(v_ids) AS id;
END $body$;
