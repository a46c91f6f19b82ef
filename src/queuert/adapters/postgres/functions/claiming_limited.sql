-- Claiming jobs that have a limit.

-- How many jobs each queue has room for, and how many the cluster has (null: no cap). As in `claim`:
-- claims under one cap wait for each other. Only called if there is a cap.
CREATE OR REPLACE FUNCTION {cap_rooms}(
    p_queue_names text[], p_queue_caps integer[], p_member_queues integer[], p_member_types text[], p_cluster_cap integer,
    OUT rooms integer[], OUT total bigint
) LANGUAGE plpgsql {steady} AS $body$
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
    total := p_cluster_cap - (SELECT count(*) FROM {running});
    rooms := ARRAY(
        SELECT CASE WHEN q.cap IS NOT NULL THEN greatest(0, q.cap - (
            SELECT count(*) FROM {running} AS r WHERE r.queue = q.name OR r.queue IS NULL AND EXISTS (
                SELECT FROM unnest(p_member_queues, p_member_types) AS m (queue, type_name)
                WHERE m.queue = q.n AND m.type_name = r.type_name
            )
        ))::integer END
        FROM unnest(p_queue_names, p_queue_caps) WITH ORDINALITY AS q (name, cap, n) ORDER BY q.n
    );
END $body$;

-- Claim jobs with a limit, `p_limit` at most. `p_types`, `p_queues`, `p_limits` and the rest are as
-- in `claim`; `p_pair_types` and `p_pair_names`: positions of types, and the limits that their jobs
-- may have. `p_beside`: how many jobs the whole claim may take: those without a limit compete.
--
-- Returns the columns of `claim`, and the lane of each job. The first row has `more` and `next_in`,
-- and in `blockers` the lanes to go on looking from, as JSON.
--
-- Locks: an advisory lock for each cap, which is waited for. Then, without waiting: an advisory lock
-- for each limit; lanes with their turns; waiting jobs. All of these are skipped if another
-- transaction has them.
CREATE OR REPLACE FUNCTION {claim_limited}(
    p_worker text, p_limit integer, p_beside integer, p_types text[], p_queues integer[], p_limits integer[], p_leases double precision[],
    p_pair_types integer[], p_pair_names text[], p_queue_names text[], p_queue_priorities integer[], p_queue_caps integer[],
    p_member_queues integer[], p_member_types text[], p_cluster_cap integer, p_cursors text, p_token bigint,
    p_statistics boolean
) RETURNS TABLE (
    id text, type_name text, chain_id text, chain_type text, chain_index integer, input text, priority integer,
    created_at double precision, scheduled_at double precision, attempt integer, token bigint, ordinal bigint, last_error text, deadline timestamptz,
    dedup_key text, blockers_left integer, trace_context text, chain_trace_context text, expired boolean, ran_before boolean,
    blockers text, more boolean, next_in double precision, claimed_at timestamptz, lane text
) LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_names text[] := ARRAY(SELECT DISTINCT name FROM unnest(p_pair_names) AS name ORDER BY name);
    v_name text;
    v_left integer[] := p_limits;
    v_rooms integer[];
    v_total bigint;
    v_number integer := p_limit;
    v_shut integer[];
    v_closed boolean;
    v_rule jsonb;
    v_rules jsonb := '{}';
    v_keyed boolean;
    v_simple boolean;
    v_cursors jsonb := coalesce(p_cursors::jsonb, '{}');
    v_cursor text;
    v_missed boolean := false;
    v_more boolean := false;
    v_next timestamptz;
    v_types text[];
    v_kinds integer[];
    v_tag double precision;
    v_lane text COLLATE "C";
    v_places tid[];
    v_lanes text[];
    v_tags double precision[];
    v_each integer;
    v_got integer;
    v_item record;
    -- The lanes whose turns were taken, by position.
    a_names text[] := '{}';
    a_lanes text[] := '{}';
    a_tags double precision[] := '{}';
    a_weights double precision[] := '{}';
    a_places tid[] := '{}';
    a_taken integer[];
    a_holders uuid[];
    -- The candidates: limit by limit, each in the order of its turns.
    c_limits integer[] := '{}';
    c_lanes integer[] := '{}';
    c_places tid[] := '{}';
    c_ids uuid[] := '{}';
    c_kinds integer[] := '{}';
    c_queues integer[] := '{}';
    c_priorities integer[] := '{}';
    c_times timestamptz[] := '{}';
    -- For each limit: the next and the last candidate of it.
    v_heads integer[] := '{}';
    v_ends integer[] := '{}';
    -- Jobs without a limit.
    b_queues integer[];
    b_priorities integer[];
    b_times timestamptz[];
    b_ids uuid[];
    v_beside integer := 0;
    v_best integer;
    v_chosen integer[] := '{}';
    v_free uuid[];
    v_ids uuid[] := '{}';
    v_of integer[] := '{}';
BEGIN
    IF p_cluster_cap IS NOT NULL OR array_remove(p_queue_caps, NULL) <> '{}' THEN
        SELECT found.rooms, found.total INTO v_rooms, v_total
        FROM {cap_rooms}(p_queue_names, p_queue_caps, p_member_queues, p_member_types, p_cluster_cap) AS found;
        v_number := greatest(0, least(v_number, v_total));
    END IF;
    v_now := {clock};
    v_closed := EXISTS (SELECT FROM {closing});
    IF EXISTS (SELECT FROM {pause}) THEN
        v_closed := v_closed OR EXISTS (SELECT FROM {pause} AS p WHERE p.scope = 'key');
        SELECT coalesce(found.shut, '{}') INTO v_shut FROM {pauses_of}(
            p_types, ARRAY(SELECT p_queue_names[q.n] FROM unnest(p_queues) WITH ORDINALITY AS q (n, place) ORDER BY q.place), v_now
        ) AS found;
        FOR v_each IN SELECT unnest(v_shut) LOOP
            v_left[v_each] := 0;
        END LOOP;
    END IF;
    PERFORM {promote_lanes}(ARRAY(SELECT DISTINCT p_types[n] FROM unnest(p_pair_types) AS n), greatest(1000, p_limit), v_now);

    FOREACH v_name IN ARRAY v_names LOOP
        v_rule := {limit_rule}(v_name);
        v_keyed := EXISTS (SELECT FROM {limit_change} AS c WHERE c.lane > v_name AND c.lane < v_name || ' ');
        v_simple := NOT v_keyed AND NOT v_closed AND jsonb_typeof(v_rule -> 'rate') IS DISTINCT FROM 'array'
            AND NOT coalesce((v_rule ->> 'ordered')::boolean, false);
        v_rules := v_rules || jsonb_build_object(v_name, jsonb_build_array(v_rule, v_keyed));
        IF pg_try_advisory_xact_lock({lock_space}, hashtext('{lock_name}limit.' || v_name)) THEN
            v_cursor := {look_for_lanes}(v_name, v_rule, v_keyed, v_closed, v_cursors ->> v_name, greatest(50, p_limit), v_now);
            v_cursors := v_cursors || jsonb_build_object(v_name, v_cursor);
            v_missed := v_missed OR v_cursor IS NOT NULL;
        ELSE
            v_missed := true;
        END IF;
        v_kinds := ARRAY(
            SELECT p.n FROM unnest(p_pair_types, p_pair_names) AS p (n, name)
            WHERE p.name = v_name AND v_left[p.n] > 0 AND (v_rooms[p_queues[p.n]] IS NULL OR v_rooms[p_queues[p.n]] > 0)
        );
        v_types := ARRAY(SELECT p_types[n] FROM unnest(v_kinds) AS n);
        v_heads := v_heads || (cardinality(c_ids) + 1);
        v_got := 0;
        v_tag := '-infinity';
        v_lane := '';
        WHILE v_got < v_number AND cardinality(v_kinds) > 0 LOOP
            SELECT array_agg(x.place), array_agg(x.lane), array_agg(x.tag) INTO v_places, v_lanes, v_tags FROM (
                SELECT t.ctid AS place, t.lane, t.tag FROM {turn} AS t JOIN {lane} AS l ON l.lane = t.lane
                WHERE t.name = v_name AND (t.tag, t.lane) > (v_tag, v_lane)
                ORDER BY t.tag, t.lane LIMIT v_number - v_got FOR UPDATE OF t, l SKIP LOCKED
            ) AS x;
            EXIT WHEN v_lanes IS NULL;
            v_each := cardinality(v_lanes);
            v_tag := v_tags[v_each];
            v_lane := v_lanes[v_each];
            -- So many of each lane: enough to be fair among lanes that have jobs.
            v_each := CASE WHEN v_each * (v_number - v_got) <= 300 THEN v_number - v_got ELSE 1 + 2 * (v_number - v_got) / v_each END;
            -- After the locks: what is allowed now was not used up by another claim.
            v_now := greatest(v_now, {clock});
            FOR v_item IN
                SELECT cardinality(a_lanes) + asked.n AS at, e.place, e.id, kind.n AS kind, e.n AS number,
                    coalesce((own.rule ->> 'weight')::double precision, 1) AS weight,
                    p_queue_priorities[p_queues[kind.n]] AS queue_priority, e.priority, e.scheduled_at
                FROM unnest(v_lanes, v_tags) WITH ORDINALITY AS asked (lane, tag, n)
                CROSS JOIN LATERAL (SELECT l.* FROM {lane} AS l WHERE l.lane = asked.lane OFFSET 0) AS l
                CROSS JOIN LATERAL (
                    SELECT o.rule FROM {own_rule}(v_rule, v_keyed, asked.lane) AS o WHERE NOT v_simple
                    UNION ALL
                    SELECT v_rule WHERE v_simple
                ) AS own
                CROSS JOIN LATERAL (
                    SELECT o.room, o.only_id FROM {lane_room}(
                        l.lane, l.running, l.begun, l.begun_at, l.holder, own.rule, v_each, v_closed, v_now
                    ) AS o WHERE NOT v_simple
                    UNION ALL
                    SELECT greatest(0, least(v_each, coalesce((v_rule ->> 'concurrency')::integer - l.running, v_each))), NULL::uuid WHERE v_simple
                ) AS r
                CROSS JOIN LATERAL (
                    SELECT f.*, row_number() OVER () AS n FROM (
                        SELECT w.ctid AS place, w.id, w.type_name, w.priority, w.scheduled_at FROM {line} AS w
                        WHERE w.lane = asked.lane AND w.type_name = ANY (v_types) AND r.only_id IS NULL
                        ORDER BY w.priority, w.scheduled_at, w.id LIMIT r.room
                    ) AS f
                    UNION ALL
                    SELECT w.ctid, w.id, w.type_name, w.priority, w.scheduled_at, 1 FROM {job} AS j
                    JOIN {line} AS w ON w.lane = j.lane AND w.priority = j.priority AND w.scheduled_at = j.scheduled_at AND w.id = j.id
                    WHERE j.id = r.only_id AND w.type_name = ANY (v_types) AND r.room > 0
                ) AS e
                CROSS JOIN LATERAL (
                    SELECT k AS n FROM unnest(v_kinds) AS k WHERE p_types[k] = e.type_name
                    ORDER BY p_queue_priorities[p_queues[k]], k LIMIT 1
                ) AS kind
                ORDER BY queue_priority, asked.tag + (e.n - 1) / coalesce((own.rule ->> 'weight')::double precision, 1), asked.lane, e.n
            LOOP
                c_limits := c_limits || cardinality(v_heads);
                c_lanes := c_lanes || v_item.at::integer;
                c_places := c_places || v_item.place;
                c_ids := c_ids || v_item.id;
                c_kinds := c_kinds || v_item.kind;
                c_queues := c_queues || v_item.queue_priority;
                c_priorities := c_priorities || v_item.priority;
                c_times := c_times || v_item.scheduled_at;
                a_weights[v_item.at] := v_item.weight;
                v_got := v_got + 1;
                v_more := v_more OR v_item.number = v_each;
            END LOOP;
            a_names := a_names || array_fill(v_name, ARRAY[cardinality(v_lanes)]);
            a_lanes := a_lanes || v_lanes;
            a_tags := a_tags || v_tags;
            a_places := a_places || v_places;
            a_weights[cardinality(a_lanes)] := coalesce(a_weights[cardinality(a_lanes)], 1);
        END LOOP;
        v_ends := v_ends || cardinality(c_ids);
        IF v_got < v_number AND cardinality(v_kinds) > 0 THEN
            v_missed := v_missed OR EXISTS (SELECT FROM {turn} AS t WHERE t.name = v_name AND t.lane <> ALL (a_lanes));
        END IF;
    END LOOP;

    IF cardinality(c_ids) > 0 THEN
        SELECT array_agg(b.queue), array_agg(b.priority), array_agg(b.scheduled_at), array_agg(b.id)
        INTO b_queues, b_priorities, b_times, b_ids FROM (
            SELECT p_queue_priorities[t.queue] AS queue, r.priority, r.scheduled_at, r.id
            FROM unnest(p_types, p_queues, v_left) AS t (name, queue, left_over)
            CROSS JOIN LATERAL (
                SELECT e.priority, e.scheduled_at, e.id FROM {ready} AS e WHERE e.type_name = t.name
                ORDER BY e.priority, e.scheduled_at, e.id LIMIT p_beside
            ) AS r
            WHERE t.left_over > 0 AND (v_rooms[t.queue] IS NULL OR v_rooms[t.queue] > 0)
            ORDER BY 1, 2, 3, 4 LIMIT p_beside
        ) AS b;
        -- The heads of all limits and the next job without a limit compete for each place.
        LOOP
            v_best := NULL;
            FOR v_row IN 1..cardinality(v_heads) LOOP
                v_each := v_heads[v_row];
                IF v_each <= v_ends[v_row] AND (v_best IS NULL OR (c_queues[v_each], c_priorities[v_each], c_times[v_each], c_ids[v_each])
                    < (c_queues[v_heads[v_best]], c_priorities[v_heads[v_best]], c_times[v_heads[v_best]], c_ids[v_heads[v_best]]))
                THEN
                    v_best := v_row;
                END IF;
            END LOOP;
            EXIT WHEN v_best IS NULL;
            IF cardinality(v_chosen) >= v_number OR cardinality(v_chosen) + v_beside >= p_beside THEN
                v_more := true;
                EXIT;
            END IF;
            v_each := v_heads[v_best];
            IF (b_queues[v_beside + 1], b_priorities[v_beside + 1], b_times[v_beside + 1], b_ids[v_beside + 1])
                < (c_queues[v_each], c_priorities[v_each], c_times[v_each], c_ids[v_each])
            THEN
                v_beside := v_beside + 1;
                CONTINUE;
            END IF;
            v_heads[v_best] := v_each + 1;
            CONTINUE WHEN v_left[c_kinds[v_each]] <= 0 OR v_rooms[p_queues[c_kinds[v_each]]] <= 0;
            v_left[c_kinds[v_each]] := v_left[c_kinds[v_each]] - 1;
            v_rooms[p_queues[c_kinds[v_each]]] := v_rooms[p_queues[c_kinds[v_each]]] - 1;
            v_chosen := v_chosen || v_each;
        END LOOP;
        -- Only what could be locked is taken, and counted. A job that is being cancelled stays.
        v_free := ARRAY(
            SELECT e.id FROM {line} AS e WHERE e.ctid = ANY (ARRAY(SELECT c_places[n] FROM unnest(v_chosen) AS n)) FOR UPDATE SKIP LOCKED
        );
        a_taken := array_fill(0, ARRAY[cardinality(a_lanes)]);
        a_holders := array_fill(NULL::uuid, ARRAY[cardinality(a_lanes)]);
        FOREACH v_each IN ARRAY v_chosen LOOP
            IF cardinality(v_free) = cardinality(v_chosen) OR c_ids[v_each] = ANY (v_free) THEN
                v_ids := v_ids || c_ids[v_each];
                v_of := v_of || v_each;
                a_taken[c_lanes[v_each]] := a_taken[c_lanes[v_each]] + 1;
                a_holders[c_lanes[v_each]] := c_ids[v_each];
            END IF;
        END LOOP;
        IF cardinality(v_ids) > 0 THEN
            -- Rows of `line` are never updated, and these are locked by us: their ctids are right.
            WITH taken AS (
                DELETE FROM {line} AS e WHERE e.ctid = ANY (ARRAY(SELECT c_places[n] FROM unnest(v_of) AS n)) RETURNING e.type_name, e.scheduled_at
            )
            INSERT INTO {tally} (at, type_name, what, number, since)
            SELECT v_now, t.type_name, 'begun', count(*), array_agg(t.scheduled_at) FROM taken AS t WHERE p_statistics GROUP BY t.type_name;
            INSERT INTO {running} (job_id, token, type_name, queue, worker, leased_until, started_at, ordinal, lane)
            SELECT f.id, p_token + f.n - 1, p_types[c_kinds[f.place]], p_queue_names[p_queues[c_kinds[f.place]]], p_worker,
                v_now + make_interval(secs => p_leases[c_kinds[f.place]]), v_now, NULL, a_lanes[c_lanes[f.place]]
            FROM unnest(v_ids, v_of) WITH ORDINALITY AS f (id, place, n);
        END IF;
    END IF;
    IF cardinality(a_lanes) > 0 THEN
        DELETE FROM {turn} WHERE ctid = ANY (a_places);
        FOREACH v_name IN ARRAY v_names LOOP
            v_kinds := ARRAY(SELECT n FROM generate_subscripts(a_lanes, 1) AS n WHERE a_names[n] = v_name);
            IF cardinality(v_kinds) > 0 THEN
                v_rule := v_rules -> v_name -> 0;
                PERFORM {place_lanes}(
                    v_name, v_rule, (v_rules -> v_name ->> 1)::boolean, v_closed,
                    ARRAY(SELECT a_lanes[n] FROM unnest(v_kinds) AS n), ARRAY(SELECT coalesce(a_taken[n], 0) FROM unnest(v_kinds) AS n),
                    ARRAY(SELECT a_tags[n] + coalesce(a_taken[n], 0) / coalesce(a_weights[n], 1) FROM unnest(v_kinds) AS n),
                    ARRAY(SELECT a_holders[n] FROM unnest(v_kinds) AS n), v_now
                );
            END IF;
        END LOOP;
    END IF;
    IF v_missed AND cardinality(v_ids) < v_number THEN
        -- Another claim has locked lanes, and may leave jobs.
        v_next := v_now + interval '20 milliseconds';
    END IF;
    v_next := least(v_next, (
        SELECT min(soon.at) FROM unnest(v_names) AS asked (name)
        CROSS JOIN LATERAL (SELECT r.at FROM {reopen} AS r WHERE r.name = asked.name AND r.at > v_now ORDER BY r.at, r.lane LIMIT 1) AS soon
    ), (
        SELECT min(due.scheduled_at) FROM unnest(p_pair_types) AS asked (n)
        CROSS JOIN LATERAL (
            SELECT l.scheduled_at FROM {later} AS l WHERE l.type_name = p_types[asked.n] AND l.scheduled_at > v_now AND l.scheduled_at < 'infinity'
            ORDER BY l.scheduled_at LIMIT 1
        ) AS due
        WHERE asked.n <> ALL (coalesce(v_shut, '{}'))
    ));
    RETURN QUERY SELECT NULL, NULL, NULL, NULL, NULL::integer, NULL, NULL::integer, NULL::double precision,
        NULL::double precision, NULL::integer, NULL::bigint, NULL::bigint, NULL, NULL::timestamptz, NULL, NULL::integer, NULL, NULL, NULL::boolean,
        NULL::boolean, v_cursors::text, v_more, extract(epoch FROM v_next - v_now)::double precision, v_now, NULL;
    IF cardinality(v_ids) = 0 THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT j.id::text, j.type_name, CASE WHEN j.chain_index > 0 THEN j.chain_id::text END, j.chain_type, j.chain_index, j.input::text,
        j.priority, date_part('epoch', j.created_at), date_part('epoch', j.scheduled_at), j.attempt + 1, p_token + f.n - 1,
        NULL::bigint, j.last_error::text,
        CASE WHEN j.deadline BETWEEN {earliest} AND {latest} THEN j.deadline END, j.dedup_key,
        nullif(j.blockers_left, 0), j.trace_context, j.chain_trace_context, j.deadline IS NOT NULL AND j.deadline <= v_now,
        CASE WHEN j.last_attempt_at IS NOT NULL THEN true END,
        CASE WHEN j.blocker_count > 0 THEN (
            SELECT json_agg(json_build_array(b.chain_id, b.chain_type, b.status, b.output, b.trace_context) ORDER BY b.place)::text
            FROM {blockers_of}(j.id) AS b
        ) END,
        NULL::boolean, NULL::double precision, NULL::timestamptz, j.lane
    FROM unnest(v_ids) WITH ORDINALITY AS f (id, n) JOIN {job} AS j ON j.id = f.id
    ORDER BY f.n;
END $body$;
