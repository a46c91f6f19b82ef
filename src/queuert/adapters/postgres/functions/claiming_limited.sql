-- Claiming jobs that have a limit.

-- Claim jobs with a limit, `p_limit` at most. `p_types`, `p_queues`, `p_limits` and the rest are as
-- in `claim`; `p_pair_types` and `p_pair_names`: positions of types, and the limits that their jobs
-- may have. `p_beside`: how many jobs the whole claim may take: those without a limit compete.
--
-- Returns the columns of `claim`, and the lane of each job. The first row has `more` and `next_in`,
-- in `blockers` the lanes to go on looking from, as JSON, and in `ran_before` whether `claim` may find
-- jobs without a limit, or has to tell of pauses. If not, `next_in` is also right for these.
--
-- Locks: an advisory lock for each cap, which is waited for. Then, without waiting: an advisory lock
-- for each limit; lanes; turns; waiting jobs. All of these are skipped if another transaction has
-- them.
CREATE OR REPLACE FUNCTION {claim_limited}(
    p_worker text, p_limit integer, p_beside integer, p_types text[], p_queues integer[], p_limits integer[], p_leases double precision[],
    p_pair_types integer[], p_pair_names text[], p_queue_names text[], p_queue_priorities integer[], p_queue_caps integer[],
    p_member_queues integer[], p_member_types text[], p_cluster_cap integer, p_cursors text,
    p_token bigint, p_statistics boolean
) RETURNS TABLE (
    id text, type_name text, chain_id text, chain_type text, chain_index integer, input text, priority integer,
    created_at double precision, scheduled_at double precision, attempt integer, token bigint, ordinal bigint, last_error text, deadline timestamptz,
    dedup_key text, blockers_left integer, trace_context text, chain_trace_context text, expired boolean, ran_before boolean,
    blockers text, more boolean, next_in double precision, claimed_at timestamptz, lane text
) LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_names text[] := p_pair_names;
    v_name text;
    v_left integer[] := p_limits;
    v_rooms integer[];
    v_total bigint;
    v_number integer := p_limit;
    v_shut integer[];
    v_closed boolean;
    v_paused boolean;
    v_due boolean;
    v_may_look boolean;
    v_rule jsonb;
    v_rules jsonb := '{}';
    v_keyed boolean;
    v_simple boolean;
    v_cursors jsonb := coalesce(p_cursors::jsonb, '{}');
    v_look record;
    v_missed boolean := false;
    v_more boolean := false;
    v_behind boolean := false;
    v_others boolean := false;
    v_next timestamptz;
    v_types text[];
    v_kinds integer[];
    v_tag double precision;
    v_lane text COLLATE "C";
    v_places tid[];
    v_turns {turn}[];
    v_news record;
    v_weights double precision[];
    v_first integer;
    v_most integer;
    v_each integer;
    v_got integer;
    v_filled boolean;
    v_room integer[];
    v_only uuid[];
    v_concurrency integer;
    v_parts integer := 0;
    v_each_once boolean := false;
    -- The lanes whose turns were taken, limit by limit; `a_ends`: the last one of each limit.
    a_turns {turn}[] := '{}';
    a_places tid[] := '{}';
    a_ended integer[] := '{}';
    a_weights double precision[] := '{}';
    a_taken integer[];
    a_waiting boolean[];
    a_holders uuid[];
    a_ends integer[] := '{}';
    -- The candidates: limit by limit, each in the order of its turns.
    f record;
    c_limits integer[] := '{}';
    c_lanes integer[] := '{}';
    c_places tid[] := '{}';
    c_ids uuid[] := '{}';
    c_kinds integer[] := '{}';
    c_priorities integer[] := '{}';
    c_times timestamptz[] := '{}';
    c_numbers bigint[] := '{}';
    -- Jobs without a limit.
    b record;
    v_beside integer := 0;
    v_order integer[];
    v_chosen integer[] := '{}';
    v_ids uuid[];
BEGIN
    IF p_cluster_cap IS NOT NULL OR array_remove(p_queue_caps, NULL) <> '{}' THEN
        SELECT found.rooms, found.total INTO v_rooms, v_total
        FROM {cap_rooms}(p_queue_names, p_queue_caps, p_member_queues, p_member_types, p_cluster_cap) AS found;
        v_number := least(v_number, v_total);
    END IF;
    v_now := {clock};
    IF cardinality(v_names) > 1 THEN
        v_names := ARRAY(SELECT DISTINCT name FROM unnest(p_pair_names) AS name ORDER BY name);
    END IF;
    -- OFFSET, here and below: otherwise, a plan may hash all of these tables.
    SELECT EXISTS (SELECT FROM {closing}), EXISTS (SELECT FROM {pause}), EXISTS (
        SELECT FROM unnest(p_types) AS asked (name) WHERE EXISTS (
            SELECT FROM {later} AS l WHERE l.type_name = asked.name AND l.scheduled_at <= v_now ORDER BY l.scheduled_at LIMIT 1 OFFSET 0
        )
    ) INTO v_closed, v_paused, v_due;
    IF v_paused THEN
        v_others := true;
        v_closed := v_closed OR EXISTS (SELECT FROM {pause} AS p WHERE p.scope = 'key');
        SELECT coalesce(found.shut, '{}') INTO v_shut FROM {pauses_of}(
            p_types, ARRAY(SELECT p_queue_names[q.n] FROM unnest(p_queues) WITH ORDINALITY AS q (n, place) ORDER BY q.place), v_now
        ) AS found;
        FOR v_each IN SELECT unnest(v_shut) LOOP
            v_left[v_each] := 0;
        END LOOP;
    END IF;
    IF v_due THEN
        PERFORM {promote_lanes}(ARRAY(SELECT DISTINCT p_types[n] FROM unnest(p_pair_types) AS n), greatest(1000, p_limit), v_now);
    END IF;
    SELECT array_agg(found.queue) AS queues, array_agg(found.priority) AS priorities, array_agg(found.scheduled_at) AS times, array_agg(found.id) AS ids
    INTO b FROM (
        SELECT p_queue_priorities[t.queue] AS queue, r.priority, r.scheduled_at, r.id
        FROM unnest(p_types, p_queues, v_left) AS t (name, queue, left_over)
        CROSS JOIN LATERAL (
            SELECT e.priority, e.scheduled_at, e.id FROM {ready} AS e WHERE e.type_name = t.name
            ORDER BY e.priority, e.scheduled_at, e.id LIMIT p_beside
        ) AS r
        WHERE t.left_over > 0 AND (v_rooms[t.queue] IS NULL OR v_rooms[t.queue] > 0)
        ORDER BY 1, 2, 3, 4 LIMIT p_beside
    ) AS found;
    v_others := v_others OR b.ids IS NOT NULL;

    FOREACH v_name IN ARRAY v_names LOOP
        SELECT {limit_rule}(v_name), EXISTS (SELECT FROM {limit_change} AS c WHERE c.lane > v_name AND c.lane < v_name || ' '),
            pg_try_advisory_xact_lock({lock_space}, hashtext('{lock_name}limit.' || v_name))
        INTO v_rule, v_keyed, v_may_look;
        -- Only a number counts: then no function is called for each lane.
        v_simple := NOT v_keyed AND NOT v_closed AND jsonb_typeof(v_rule -> 'rate') IS DISTINCT FROM 'array'
            AND NOT coalesce((v_rule ->> 'ordered')::boolean, false);
        v_rules := v_rules || jsonb_build_object(v_name, jsonb_build_array(v_rule, v_keyed));
        v_kinds := ARRAY(
            SELECT p.n FROM unnest(p_pair_types, p_pair_names) AS p (n, name)
            WHERE p.name = v_name AND v_left[p.n] > 0 AND (v_rooms[p_queues[p.n]] IS NULL OR v_rooms[p_queues[p.n]] > 0)
        );
        v_types := ARRAY(SELECT p_types[n] FROM unnest(v_kinds) AS n);
        IF v_may_look THEN
            v_look := {look_for_lanes}(
                v_name, v_rule, v_keyed, v_closed, v_cursors ->> v_name, greatest(50, p_limit), v_now
            );
            v_cursors := v_cursors || jsonb_build_object(v_name, v_look.cursor);
            v_missed := v_missed OR v_look.more AND cardinality(v_kinds) > 0;
        ELSE
            v_missed := true;
        END IF;
        v_got := 0;
        v_only := NULL;
        v_tag := '-infinity';
        v_lane := '';
        WHILE v_got < v_number AND cardinality(v_kinds) > 0 LOOP
            SELECT array_agg(x.place), array_agg(x.turn) INTO v_places, v_turns FROM (
                SELECT t.ctid AS place, t AS turn FROM {turn} AS t
                WHERE t.name = v_name AND (t.tag, t.lane) > (v_tag, v_lane)
                ORDER BY t.tag, t.lane LIMIT v_number - v_got FOR UPDATE SKIP LOCKED
            ) AS x;
            EXIT WHEN v_turns IS NULL;
            v_parts := v_parts + 1;
            v_first := cardinality(a_places);
            v_each := cardinality(v_turns);
            v_filled := v_each = v_number - v_got;
            v_tag := v_turns[v_each].tag;
            v_lane := v_turns[v_each].lane;
            IF v_keyed OR jsonb_typeof(v_rule -> 'weight') <> 'number' THEN
                v_weights := ARRAY(
                    SELECT {lane_weight}(l.lane, own.rule) FROM unnest(v_turns) WITH ORDINALITY AS l
                    CROSS JOIN LATERAL {own_rule}(v_rule, v_keyed, l.lane) AS own ORDER BY l.ordinality
                );
            ELSE
                v_weights := array_fill(coalesce((v_rule ->> 'weight')::double precision, 1), ARRAY[v_each]);
            END IF;
            -- After the locks: what is allowed now was not used up by another claim.
            v_news := {take_news}(v_turns);
            v_missed := v_missed OR v_news.more;
            v_now := greatest(v_now, {clock});
            v_concurrency := (v_rule ->> 'concurrency')::integer;
            -- Mostly each lane gives one job: nothing else competes, and no second job is before the last lane.
            IF v_simple AND v_filled AND v_parts = 1 AND cardinality(v_names) = 1 AND cardinality(v_kinds) = 1 AND b.ids IS NULL
                AND v_number <= least(p_beside, v_left[v_kinds[1]], coalesce(v_rooms[p_queues[v_kinds[1]]], v_number))
                AND (v_tag - v_turns[1].tag) * v_weights[1] < 1 AND v_weights[1] = ALL (v_weights)
                AND NOT EXISTS (
                    SELECT FROM unnest(v_turns, v_news.ended) AS l (name, tag, lane, running, begun, begun_at, holder, ended)
                    WHERE l.running - l.ended >= v_concurrency
                )
            THEN
                SELECT e.ids, e.waiting INTO v_ids, a_waiting FROM {begin_each}(
                    v_turns, v_types[1], p_queue_names[p_queues[v_kinds[1]]], p_worker, p_leases[v_kinds[1]], p_token, p_statistics, v_now
                ) AS e;
                v_each_once := v_ids IS NOT NULL;
            END IF;
            IF v_each_once THEN
                a_turns := v_turns;
                a_places := v_places;
                a_ended := v_news.ended;
                a_weights := v_weights;
                a_taken := array_fill(1, ARRAY[v_number]);
                v_got := v_number;
                EXIT;
            END IF;
            -- So many of each lane may be taken. If there are enough lanes, none is given more than
            -- those up to the turn of the last one. One more is read, to know whether there is one.
            v_most := CASE WHEN v_filled THEN NULL WHEN v_each * (v_number - v_got) <= 300 THEN v_number - v_got ELSE 1 + 2 * (v_number - v_got) / v_each END;
            v_room := ARRAY(
                SELECT coalesce(v_most, least(v_number - v_got, 2 + floor((v_tag - l.tag) * v_weights[l.ordinality])))::integer
                FROM unnest(v_turns) WITH ORDINALITY AS l ORDER BY l.ordinality
            );
            IF v_simple THEN
                v_room := ARRAY(
                    SELECT greatest(0, least(v_room[l.ordinality], v_concurrency - l.running + v_news.ended[l.ordinality]))
                    FROM unnest(v_turns) WITH ORDINALITY AS l ORDER BY l.ordinality
                );
            ELSE
                SELECT array_agg(o.room ORDER BY l.ordinality), array_agg(o.only_id ORDER BY l.ordinality) INTO v_room, v_only
                FROM unnest(v_turns) WITH ORDINALITY AS l
                CROSS JOIN LATERAL {own_rule}(v_rule, v_keyed, l.lane) AS own
                CROSS JOIN LATERAL {lane_room}(
                    l.lane, l.running - v_news.ended[l.ordinality], l.begun, l.begun_at, l.holder, own.rule, v_room[l.ordinality], v_closed, v_now
                ) AS o;
            END IF;
            f := {candidates}(
                v_turns, v_room, v_only, v_weights, v_kinds, p_types, p_queues, p_queue_priorities, CASE WHEN v_filled THEN v_tag ELSE 'infinity' END
            );
            IF f.ids IS NOT NULL THEN
                c_lanes := c_lanes || ARRAY(SELECT v_first + n FROM unnest(f.lanes) AS n);
                c_places := c_places || f.places;
                c_ids := c_ids || f.ids;
                c_kinds := c_kinds || f.kinds;
                c_priorities := c_priorities || f.priorities;
                c_times := c_times || f.times;
                c_numbers := c_numbers || f.numbers;
                c_limits := c_limits || array_fill(cardinality(a_ends), ARRAY[cardinality(f.ids)]);
            END IF;
            v_got := v_got + f.number;
            v_more := v_more OR coalesce(v_most = ANY (f.numbers), false);
            a_turns := a_turns || v_turns;
            a_places := a_places || v_places;
            a_ended := a_ended || v_news.ended;
            a_weights := a_weights || v_weights;
        END LOOP;
        a_ends := a_ends || cardinality(a_places);
        IF v_got >= v_number AND NOT v_each_once THEN
            v_behind := v_behind OR EXISTS (SELECT FROM {turn} AS t WHERE t.name = v_name AND (t.tag, t.lane) > (v_tag, v_lane));
        ELSIF cardinality(v_kinds) > 0 AND NOT v_each_once THEN
            v_missed := v_missed OR EXISTS (SELECT FROM {turn} AS t WHERE t.name = v_name AND t.ctid <> ALL (a_places));
        END IF;
    END LOOP;

    v_ids := coalesce(v_ids, '{}');
    IF cardinality(c_ids) > 0 THEN
        IF b.ids IS NULL AND v_parts = 1 THEN
            v_order := ARRAY(SELECT generate_series(1, cardinality(c_ids)));
        ELSE
            -- The heads of all limits and the next job without a limit compete for each place. So a
            -- job comes after all that are before it in its limit, also if it is more urgent.
            v_order := ARRAY(
                SELECT head.n FROM (
                    SELECT each.n, each.place, max(each.rank) OVER (PARTITION BY each.of_limit ORDER BY each.place) AS rank FROM (
                        SELECT both_kinds.n, both_kinds.of_limit, row_number() OVER (ORDER BY both_kinds.queue, both_kinds.priority, both_kinds.time, both_kinds.id) AS rank,
                            row_number() OVER (PARTITION BY both_kinds.of_limit ORDER BY both_kinds.queue, both_kinds.turn, both_kinds.key, both_kinds.n) AS place
                        FROM (
                            SELECT c.n, c.of_limit, (a_turns[c.lane]).tag + (c.number - 1) / a_weights[c.lane] AS turn, (a_turns[c.lane]).lane AS key,
                                p_queue_priorities[p_queues[c.kind]] AS queue, c.priority, c.time, c.id
                            FROM unnest(c_limits, c_lanes, c_numbers, c_kinds, c_priorities, c_times, c_ids) WITH ORDINALITY
                                AS c (of_limit, lane, number, kind, priority, time, id, n)
                            UNION ALL
                            SELECT cardinality(c_ids) + w.n, -1, 0, '', w.queue, w.priority, w.time, w.id
                            FROM unnest(b.queues, b.priorities, b.times, b.ids) WITH ORDINALITY AS w (queue, priority, time, id, n)
                        ) AS both_kinds
                    ) AS each
                ) AS head ORDER BY head.rank, head.place
            );
        END IF;
        IF b.ids IS NULL AND v_rooms IS NULL AND v_number <= ALL (v_left) THEN
            v_chosen := v_order[1:least(v_number, p_beside)];
            v_more := v_more OR cardinality(v_order) > cardinality(v_chosen);
        ELSE
            FOREACH v_each IN ARRAY v_order LOOP
                IF v_each > cardinality(c_ids) THEN
                    v_beside := v_beside + 1;
                    CONTINUE;
                END IF;
                IF cardinality(v_chosen) >= v_number OR cardinality(v_chosen) + v_beside >= p_beside THEN
                    v_more := true;
                    EXIT;
                END IF;
                CONTINUE WHEN v_left[c_kinds[v_each]] <= 0 OR v_rooms[p_queues[c_kinds[v_each]]] <= 0;
                v_left[c_kinds[v_each]] := v_left[c_kinds[v_each]] - 1;
                v_rooms[p_queues[c_kinds[v_each]]] := v_rooms[p_queues[c_kinds[v_each]]] - 1;
                v_chosen := v_chosen || v_each;
            END LOOP;
        END IF;
        -- Only what could be locked is taken, and counted. A job that is being cancelled stays. Rows
        -- of `line` are never updated: their ctids are right.
        v_places := ARRAY(SELECT c_places[n] FROM unnest(v_chosen) AS n);
        v_ids := ARRAY(SELECT w.id FROM {line} AS w WHERE w.ctid = ANY (v_places) FOR UPDATE SKIP LOCKED);
        IF cardinality(v_ids) < cardinality(v_chosen) THEN
            v_chosen := ARRAY(SELECT c.n FROM unnest(v_chosen) WITH ORDINALITY AS c (n, place) WHERE c_ids[c.n] = ANY (v_ids) ORDER BY c.place);
            v_places := ARRAY(SELECT c_places[n] FROM unnest(v_chosen) AS n);
        END IF;
        DELETE FROM {line} WHERE ctid = ANY (v_places);
        v_ids := ARRAY(SELECT c_ids[n] FROM unnest(v_chosen) AS n);
        INSERT INTO {running} (job_id, token, type_name, queue, worker, leased_until, started_at, ordinal, lane)
        SELECT c_ids[c.n], p_token + c.place - 1, p_types[kind.n], p_queue_names[p_queues[kind.n]], p_worker,
            v_now + make_interval(secs => p_leases[kind.n]), v_now, NULL, (a_turns[c_lanes[c.n]]).lane
        FROM unnest(v_chosen) WITH ORDINALITY AS c (n, place)
        CROSS JOIN LATERAL (SELECT c_kinds[c.n] AS n OFFSET 0) AS kind;
        IF p_statistics THEN
            INSERT INTO {tally} (at, type_name, what, number, since)
            SELECT v_now, p_types[c_kinds[c.n]], 'begun', count(*), array_agg(c_times[c.n]) FROM unnest(v_chosen) AS c (n) GROUP BY 2;
        END IF;
        a_taken := array_fill(0, ARRAY[cardinality(a_places)]);
        a_waiting := array_fill(false, ARRAY[cardinality(a_places)]);
        a_holders := array_fill(NULL::uuid, ARRAY[cardinality(a_places)]);
        FOREACH v_each IN ARRAY v_chosen LOOP
            a_taken[c_lanes[v_each]] := a_taken[c_lanes[v_each]] + 1;
            a_holders[c_lanes[v_each]] := c_ids[v_each];
        END LOOP;
        -- Candidates come in the order of their line: the last one of each lane tells.
        FOR v_each IN 1..cardinality(c_ids) LOOP
            a_waiting[c_lanes[v_each]] := c_numbers[v_each] > a_taken[c_lanes[v_each]];
        END LOOP;
    END IF;
    IF cardinality(a_places) > 0 THEN
        DELETE FROM {turn} WHERE ctid = ANY (a_places);
        a_taken := coalesce(a_taken, array_fill(0, ARRAY[cardinality(a_places)]));
        v_first := 1;
        FOR v_each IN 1..cardinality(v_names) LOOP
            IF a_ends[v_each] >= v_first THEN
                PERFORM {place_lanes}(
                    v_names[v_each], v_rules -> v_names[v_each] -> 0, (v_rules -> v_names[v_each] ->> 1)::boolean, v_closed, true,
                    a_turns[v_first:a_ends[v_each]], a_ended[v_first:a_ends[v_each]], a_taken[v_first:a_ends[v_each]],
                    a_waiting[v_first:a_ends[v_each]], a_weights[v_first:a_ends[v_each]], a_holders[v_first:a_ends[v_each]], v_now
                );
            END IF;
            v_first := a_ends[v_each] + 1;
        END LOOP;
    END IF;
    IF v_each_once THEN
        -- After the lanes were placed: also those that stay open.
        v_more := EXISTS (SELECT FROM {turn} AS t WHERE t.name = v_names[1]);
    ELSIF v_behind AND cardinality(v_ids) >= v_number THEN
        v_more := true;
    END IF;
    IF v_missed AND cardinality(v_ids) < v_number THEN
        -- Another claim has locked lanes, and may leave jobs.
        v_next := v_now + interval '20 milliseconds';
    END IF;
    SELECT v_others OR EXISTS (
        SELECT FROM unnest(p_types) AS asked (type_name)
        WHERE EXISTS (SELECT FROM {ready} AS e WHERE e.type_name = asked.type_name ORDER BY e.priority, e.scheduled_at, e.id LIMIT 1 OFFSET 0)
            OR EXISTS (SELECT FROM {later} AS l WHERE l.type_name = asked.type_name AND l.scheduled_at <= v_now ORDER BY l.scheduled_at LIMIT 1 OFFSET 0)
    ), least(v_next, (
        SELECT min(soon.at) FROM unnest(v_names) AS asked (name)
        CROSS JOIN LATERAL (SELECT r.at FROM {reopen} AS r WHERE r.name = asked.name AND r.at > v_now ORDER BY r.at, r.lane LIMIT 1) AS soon
    ), (
        SELECT min(due.scheduled_at) FROM unnest(p_types) WITH ORDINALITY AS asked (type_name, n)
        CROSS JOIN LATERAL (
            SELECT l.scheduled_at FROM {later} AS l WHERE l.type_name = asked.type_name AND l.scheduled_at > v_now AND l.scheduled_at < 'infinity'
            ORDER BY l.scheduled_at LIMIT 1
        ) AS due
        WHERE asked.n <> ALL (coalesce(v_shut, '{}'))
    )) INTO v_others, v_next;
    RETURN QUERY SELECT NULL, NULL, NULL, NULL, NULL::integer, NULL, NULL::integer, NULL::double precision,
        NULL::double precision, NULL::integer, NULL::bigint, NULL::bigint, NULL, NULL::timestamptz, NULL, NULL::integer, NULL, NULL, NULL::boolean,
        v_others, v_cursors::text, v_more, extract(epoch FROM v_next - v_now)::double precision, v_now, NULL;
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
