-- The state of lanes: docs/design/limits.md explains the tables. Only claims call these functions, and
-- each of them has locked the lanes that it passes: the row of `turn` of a lane that is open, the row
-- of `lane` of one that is not. A lane is passed as a row of `turn`.

-- Take what is new of lanes, and count the claims that have ended, for each of them. If it is very much,
-- something may be left: `more`. Index news_lane.
CREATE OR REPLACE FUNCTION {take_news}(p_lanes {turn}[], OUT ended integer[], OUT more boolean) LANGUAGE plpgsql AS $body$
DECLARE
    v_most integer := 500 + 10 * cardinality(p_lanes);
    v_names text[] := ARRAY(SELECT l.lane FROM unnest(p_lanes) AS l);
    v_places tid[];
    v_left text[];
    v_at integer := 1;
    v_name text COLLATE "C";
BEGIN
    ended := array_fill(0, ARRAY[cardinality(p_lanes)]);
    -- All lanes at once is three times as fast as lane by lane. No order: servers before 17 would sort
    -- all rows. They come in the order of the index anyway.
    SELECT array_agg(e.ctid), array_agg(e.lane) FILTER (WHERE e.kind < 0) INTO v_places, v_left
    FROM (SELECT e.ctid, e.lane, e.kind FROM {news} AS e WHERE e.lane = ANY (v_names) LIMIT v_most) AS e;
    more := coalesce(cardinality(v_places) >= v_most, false);
    IF v_places IS NOT NULL THEN
        DELETE FROM {news} WHERE ctid = ANY (v_places);
    END IF;
    -- Lanes with the same turn are in the order of their names: mostly it is the next one.
    FOREACH v_name IN ARRAY coalesce(v_left, '{}') LOOP
        IF v_names[v_at] <> v_name THEN
            v_at := array_position(v_names, v_name);
        END IF;
        ended[v_at] := ended[v_at] + 1;
        v_at := least(v_at + 1, cardinality(v_names));
    END LOOP;
END $body$;

-- The common claim, made cheap: take the first job of each of these lanes, in their order. All jobs have
-- one type. Returns them, the moments since when they were due, their lanes, and which have another job; or nulls if a
-- lane has none that is free, and then nothing is written. Locks waiting jobs, and skips locked ones. Primary key
-- of `line`.
CREATE OR REPLACE FUNCTION {take_firsts}(p_lanes {turn}[], p_type text, OUT ids uuid[], OUT times timestamptz[], OUT names text[], OUT waiting boolean[])
LANGUAGE plpgsql AS $body$
DECLARE
    v_number integer := cardinality(p_lanes);
    v_places tid[];
BEGIN
    SELECT array_agg(c.place), array_agg(c.id), array_agg(c.scheduled_at), array_agg(c.lane) INTO v_places, ids, times, names
    FROM (
        SELECT l.lane, w.*
        FROM unnest(p_lanes) WITH ORDINALITY AS l
        CROSS JOIN LATERAL (
            SELECT e.ctid AS place, e.id, e.scheduled_at FROM {line} AS e WHERE e.lane = l.lane AND e.type_name IS NOT DISTINCT FROM p_type
            ORDER BY e.priority, e.scheduled_at, e.id LIMIT 1
        ) AS w
        ORDER BY l.ordinality
    ) AS c;
    IF cardinality(ids) IS DISTINCT FROM v_number OR (
        SELECT count(*) FROM (SELECT FROM {line} AS w WHERE w.ctid = ANY (v_places) FOR UPDATE SKIP LOCKED) AS locked
    ) < v_number THEN
        ids := NULL;
        times := NULL;
        names := NULL;
        RETURN;
    END IF;
    DELETE FROM {line} WHERE ctid = ANY (v_places);
    -- OFFSET: otherwise, a plan may hash all of `line`.
    waiting := ARRAY(
        SELECT EXISTS (SELECT FROM {line} AS e WHERE e.lane = l.lane ORDER BY e.priority, e.scheduled_at, e.id LIMIT 1 OFFSET 0)
        FROM unnest(p_lanes) WITH ORDINALITY AS l ORDER BY l.ordinality
    );
END $body$;

-- The first jobs of lanes, in the order of their turns: `p_rooms` of each, or only `p_only`, of the types
-- at the positions `p_kinds`. Of each: the position of its lane, and its number there. `number`: how many
-- of them come up to the turn `p_last`. Locks nothing. Primary key of `line`. (IS NOT DISTINCT FROM: with
-- an equals sign, a plan may read all jobs of the type along `line_type`.)
CREATE OR REPLACE FUNCTION {candidates}(
    p_lanes {turn}[], p_rooms integer[], p_only uuid[], p_weights double precision[], p_kinds integer[], p_types text[], p_queues integer[],
    p_queue_priorities integer[], p_last double precision, OUT lanes integer[], OUT places tid[], OUT ids uuid[], OUT kinds integer[],
    OUT priorities integer[], OUT times timestamptz[], OUT numbers bigint[], OUT number bigint
) LANGUAGE plpgsql AS $body$
DECLARE
    v_type text := p_types[p_kinds[1]];
    v_types text[];
BEGIN
    IF p_only IS NULL AND cardinality(p_kinds) = 1 THEN
        SELECT array_agg(c.lane), array_agg(c.place), array_agg(c.id), array_agg(p_kinds[1]), array_agg(c.priority), array_agg(c.scheduled_at),
            array_agg(c.number), count(*) FILTER (WHERE c.turn <= p_last)
        INTO lanes, places, ids, kinds, priorities, times, numbers, number
        FROM (
            SELECT l.ordinality::integer AS lane, w.*, l.tag + (w.number - 1) / p_weights[l.ordinality] AS turn
            FROM unnest(p_lanes) WITH ORDINALITY AS l
            CROSS JOIN LATERAL (
                SELECT x.*, row_number() OVER () AS number FROM (
                    SELECT e.ctid AS place, e.id, e.priority, e.scheduled_at FROM {line} AS e
                    WHERE e.lane = l.lane AND e.type_name IS NOT DISTINCT FROM v_type
                    ORDER BY e.priority, e.scheduled_at, e.id LIMIT p_rooms[l.ordinality]
                ) AS x
            ) AS w
            ORDER BY turn, l.lane, w.number
        ) AS c;
        RETURN;
    END IF;
    v_types := ARRAY(SELECT p_types[n] FROM unnest(p_kinds) AS n);
    SELECT array_agg(c.lane), array_agg(c.place), array_agg(c.id), array_agg(c.kind), array_agg(c.priority), array_agg(c.scheduled_at),
        array_agg(c.number), count(*) FILTER (WHERE c.turn <= p_last)
    INTO lanes, places, ids, kinds, priorities, times, numbers, number
    FROM (
        SELECT l.ordinality::integer AS lane, w.*, l.tag + (w.number - 1) / p_weights[l.ordinality] AS turn, of_type.kind
        FROM unnest(p_lanes) WITH ORDINALITY AS l
        CROSS JOIN LATERAL (
            SELECT x.*, row_number() OVER () AS number FROM (
                (
                    SELECT e.ctid AS place, e.id, e.type_name, e.priority, e.scheduled_at FROM {line} AS e
                    WHERE e.lane = l.lane AND e.type_name = ANY (v_types)
                    ORDER BY e.priority, e.scheduled_at, e.id LIMIT CASE WHEN p_only[l.ordinality] IS NULL THEN p_rooms[l.ordinality] ELSE 0 END
                )
                UNION ALL
                SELECT e.ctid, e.id, e.type_name, e.priority, e.scheduled_at FROM {job} AS j
                JOIN {line} AS e ON e.lane = j.lane AND e.priority = j.priority AND e.scheduled_at = j.scheduled_at AND e.id = j.id
                WHERE j.id = p_only[l.ordinality] AND e.type_name = ANY (v_types) AND p_rooms[l.ordinality] > 0
            ) AS x
        ) AS w
        CROSS JOIN LATERAL (
            SELECT k AS kind FROM unnest(p_kinds) AS k WHERE p_types[k] = w.type_name ORDER BY p_queue_priorities[p_queues[k]], k LIMIT 1
        ) AS of_type
        ORDER BY p_queue_priorities[p_queues[of_type.kind]], turn, l.lane, w.number
    ) AS c;
END $body$;

-- Write down what has become of lanes. `p_were_open`: they had a turn, which was deleted; otherwise
-- each gets a new turn, after the lane whose turn it is. For each lane: `p_ended`, claims that have
-- ended; `p_taken`, jobs that begin now; `p_waiting`, others wait; `p_weights`; `p_holders`, the last
-- job that begins now. A lane that may begin a job gets its turn. One that a rate has closed gets a
-- row in `reopen`. One that nothing is known of any more is deleted.
CREATE OR REPLACE FUNCTION {place_lanes}(
    p_name text, p_rule jsonb, p_keyed boolean, p_closed boolean, p_were_open boolean, p_lanes {turn}[], p_ended integer[], p_taken integer[],
    p_waiting boolean[], p_weights double precision[], p_holders uuid[], p_now timestamptz
) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    v_rated boolean := p_keyed OR coalesce(jsonb_typeof(p_rule -> 'rate') = 'array', false);
    -- Only a number counts: then no function is called for each lane.
    v_simple boolean := NOT v_rated AND NOT p_closed AND NOT coalesce((p_rule ->> 'ordered')::boolean, false);
    v_concurrency integer := (p_rule ->> 'concurrency')::integer;
    v_floor double precision := 0;
    v_rows bigint;
BEGIN
    IF p_closed THEN
        DELETE FROM {closing} WHERE until <= p_now AND lane = ANY (ARRAY(SELECT l.lane FROM unnest(p_lanes) AS l));
    END IF;
    IF NOT p_were_open THEN
        v_floor := coalesce((SELECT t.tag FROM {turn} AS t WHERE t.name = p_name ORDER BY t.tag, t.lane LIMIT 1), 0);
    ELSIF v_rated THEN
        -- A clock that is set back does not move the begins.
        INSERT INTO {begun} (lane, seq, at)
        SELECT l.lane, l.begun + n, greatest(p_now, l.begun_at)
        FROM unnest(p_lanes) WITH ORDINALITY AS l
        CROSS JOIN LATERAL {own_rule}(p_rule, p_keyed, l.lane) AS own
        CROSS JOIN generate_series(1, p_taken[l.ordinality]) AS n
        WHERE own.per IS NOT NULL;
    END IF;
    IF p_were_open AND v_simple THEN
        -- Most lanes stay open. The other ones follow.
        INSERT INTO {turn} (name, tag, lane, running, begun, begun_at, holder)
        SELECT p_name, l.tag + l.taken / l.weight, l.lane, l.running - l.ended + l.taken, 0,
            CASE WHEN l.taken > 0 THEN greatest(p_now, l.begun_at) ELSE l.begun_at END, NULL
        FROM unnest(p_lanes, p_ended, p_taken, p_waiting, p_weights)
            AS l (name, tag, lane, running, begun, begun_at, holder, ended, taken, waiting, weight)
        WHERE l.waiting AND coalesce(v_concurrency > l.running - l.ended + l.taken, true);
        GET DIAGNOSTICS v_rows = ROW_COUNT;
        IF v_rows = cardinality(p_lanes) THEN
            RETURN;
        END IF;
    END IF;
    WITH looked AS MATERIALIZED (
        SELECT l.lane, before.reopen_at, before.reopen_name, now_.running, now_.begun, now_.begun_at, r.room, r.opens_at, waiting.any_job,
            own.per, own.number,
            CASE WHEN (own.rule ->> 'ordered')::boolean AND (r.room <= 0 OR r.only_id IS NOT NULL) THEN now_.holder END AS holder,
            CASE WHEN p_were_open THEN l.tag + p_taken[l.ordinality] / p_weights[l.ordinality]
                ELSE v_floor + 1 / {lane_weight}(l.lane, own.rule) END AS tag
        FROM unnest(p_lanes) WITH ORDINALITY AS l
        LEFT JOIN LATERAL (SELECT e.reopen_at, e.reopen_name FROM {lane} AS e WHERE NOT p_were_open AND e.lane = l.lane) AS before ON true
        CROSS JOIN LATERAL (
            SELECT o.rule, o.number, o.per FROM {own_rule}(p_rule, p_keyed, l.lane) AS o WHERE NOT v_simple
            UNION ALL
            SELECT p_rule, NULL::integer, NULL::interval WHERE v_simple
        ) AS own
        CROSS JOIN LATERAL (
            SELECT l.running - p_ended[l.ordinality] + coalesce(p_taken[l.ordinality], 0) AS running,
                l.begun + CASE WHEN own.per IS NULL THEN 0 ELSE coalesce(p_taken[l.ordinality], 0) END AS begun,
                CASE WHEN p_taken[l.ordinality] > 0 THEN greatest(p_now, l.begun_at) ELSE l.begun_at END AS begun_at,
                coalesce(p_holders[l.ordinality], l.holder) AS holder
        ) AS now_
        CROSS JOIN LATERAL (
            -- OFFSET: otherwise, a plan may hash all of `line`.
            SELECT coalesce(p_waiting[l.ordinality], false)
                OR EXISTS (SELECT FROM {line} AS e WHERE e.lane = l.lane ORDER BY e.priority, e.scheduled_at, e.id LIMIT 1 OFFSET 0) AS any_job
        ) AS waiting
        CROSS JOIN LATERAL (
            SELECT o.room, o.opens_at, o.only_id FROM {lane_room}(
                l.lane, now_.running, now_.begun, now_.begun_at, now_.holder, own.rule, 1, p_closed, p_now
            ) AS o WHERE NOT v_simple
            UNION ALL
            SELECT coalesce(v_concurrency - now_.running, 1), NULL::timestamptz, NULL::uuid WHERE v_simple
        ) AS r
        WHERE NOT (p_were_open AND v_simple AND coalesce(p_waiting[l.ordinality], false) AND coalesce(v_concurrency > now_.running, true))
    ), state AS MATERIALIZED (
        SELECT k.*, k.any_job AND k.room > 0 AS open, unused.yes AND (k.begun_at IS NULL OR k.per IS NULL OR k.begun_at < p_now - k.per) AS idle,
            CASE WHEN k.any_job AND k.room <= 0 THEN k.opens_at
                WHEN unused.yes AND k.begun_at >= p_now - k.per THEN k.begun_at + k.per + interval '1 second' END AS look_at,
            CASE WHEN k.any_job THEN p_name ELSE E'\x01' || p_name END AS look_name
        FROM looked AS k
        CROSS JOIN LATERAL (SELECT NOT k.any_job AND k.running = 0 AND k.holder IS NULL AS yes) AS unused
    ), opened AS (
        INSERT INTO {turn} (name, tag, lane, running, begun, begun_at, holder)
        SELECT p_name, s.tag, s.lane, s.running, CASE WHEN s.per IS NULL THEN 0 ELSE s.begun END, s.begun_at, s.holder FROM state AS s WHERE s.open
    ), look_again AS (
        INSERT INTO {reopen} (name, at, lane) SELECT s.look_name, s.look_at, s.lane FROM state AS s
        WHERE s.look_at IS NOT NULL AND (s.look_at, s.look_name) IS DISTINCT FROM (s.reopen_at, s.reopen_name)
    ), looked_again AS (
        DELETE FROM {reopen} AS e USING state AS s
        WHERE e.name = s.reopen_name AND e.at = s.reopen_at AND e.lane = s.lane
            AND (s.look_at, s.look_name) IS DISTINCT FROM (s.reopen_at, s.reopen_name)
    ), forgotten AS (
        DELETE FROM {begun} AS b USING state AS s WHERE s.begun > 0 AND NOT s.idle AND b.lane = s.lane AND b.seq <= s.begun - coalesce(s.number, 0)
    ), forgotten_with_it AS (
        DELETE FROM {begun} AS b USING state AS s WHERE s.begun > 0 AND s.idle AND b.lane = s.lane
    ), idle AS (
        DELETE FROM {lane} AS l USING state AS s WHERE s.idle AND l.lane = s.lane
    )
    -- A lane that stays open is not touched.
    UPDATE {lane} AS l SET
        open = s.open, running = s.running, begun = CASE WHEN s.per IS NULL THEN 0 ELSE s.begun END, begun_at = s.begun_at, holder = s.holder,
        reopen_at = s.look_at, reopen_name = CASE WHEN s.look_at IS NOT NULL THEN s.look_name END
    FROM state AS s WHERE NOT s.idle AND NOT (s.open AND p_were_open) AND l.lane = s.lane;
END $body$;

-- Look at lanes that something has happened to. Those that are open are left alone: the claim that
-- takes their turn looks. Creates and locks the rows of the others (those that another claim has
-- locked are skipped), and gives a turn to those that may begin a job. True: there is more to look
-- at. The caller has the lock of the limit, so no other claim creates lanes of it.
CREATE OR REPLACE FUNCTION {visit_lanes}(
    p_name text, p_rule jsonb, p_keyed boolean, p_closed boolean, p_lanes text[], p_now timestamptz
) RETURNS boolean LANGUAGE plpgsql AS $body$
DECLARE
    v_lanes {turn}[];
    v_news record;
BEGIN
    IF (SELECT count(*) FROM {lane} AS l WHERE l.lane = ANY (p_lanes) AND l.open) = cardinality(p_lanes) THEN
        RETURN false;
    END IF;
    INSERT INTO {lane} (lane) SELECT DISTINCT asked FROM unnest(p_lanes) AS asked
    WHERE NOT EXISTS (SELECT FROM {lane} AS l WHERE l.lane = asked OFFSET 0) ORDER BY asked ON CONFLICT DO NOTHING;
    v_lanes := ARRAY(
        SELECT ROW(p_name, NULL, l.lane, l.running, l.begun, l.begun_at, l.holder)::{turn}
        FROM {lane} AS l WHERE l.lane = ANY (p_lanes) AND NOT l.open FOR UPDATE SKIP LOCKED
    );
    IF cardinality(v_lanes) = 0 THEN
        RETURN false;
    END IF;
    v_news := {take_news}(v_lanes);
    PERFORM {place_lanes}(p_name, p_rule, p_keyed, p_closed, false, v_lanes, v_news.ended, NULL, NULL, NULL, NULL, p_now);
    RETURN v_news.more;
END $body$;

-- Find lanes that something has happened to: whose time to open has come, and that are in the news.
-- At most `p_most` of each, in their order, from the lane `p_cursor` on and around. `cursor` is the
-- last one, if there may be more. So a lane with very much news does not keep others waiting. Primary
-- key of `reopen`, and news_lane. For what is done with them see `visit_lanes`.
CREATE OR REPLACE FUNCTION {look_for_lanes}(
    p_name text, p_rule jsonb, p_keyed boolean, p_closed boolean, p_cursor text, p_most integer, p_now timestamptz,
    OUT cursor text, OUT more boolean
) LANGUAGE plpgsql AS $body$
DECLARE
    v_first text COLLATE "C" := p_name || E'\x1e';
    v_end text COLLATE "C" := p_name || ' ';
    v_after text COLLATE "C" := coalesce(p_cursor, v_first);
    v_due text[];
    v_lanes text[] := '{}';
    v_found text[];
    v_last text COLLATE "C";
BEGIN
    v_due := ARRAY(SELECT r.lane FROM {reopen} AS r WHERE r.name = p_name AND r.at <= p_now ORDER BY r.at, r.lane LIMIT p_most)
        || ARRAY(SELECT r.lane FROM {reopen} AS r WHERE r.name = E'\x01' || p_name AND r.at <= p_now ORDER BY r.at, r.lane LIMIT 10);
    LOOP
        -- Mostly a lane has one row, or a few: reading on is much faster than looking for the next lane.
        v_found := ARRAY(
            SELECT DISTINCT n.lane FROM (
                SELECT e.lane FROM {news} AS e WHERE e.lane > v_after AND e.lane < v_end ORDER BY e.lane LIMIT p_most - cardinality(v_lanes)
            ) AS n ORDER BY n.lane
        );
        v_lanes := v_lanes || v_found;
        IF cardinality(v_found) > 0 AND cardinality(v_lanes) < p_most THEN
            v_last := v_found[cardinality(v_found)];
            v_lanes := v_lanes || ARRAY(
                WITH RECURSIVE known (lane) AS (
                    (SELECT n.lane FROM {news} AS n WHERE n.lane > v_last AND n.lane < v_end ORDER BY n.lane LIMIT 1)
                    UNION ALL
                    SELECT (SELECT n.lane FROM {news} AS n WHERE n.lane > known.lane AND n.lane < v_end ORDER BY n.lane LIMIT 1)
                    FROM known WHERE known.lane IS NOT NULL
                )
                SELECT known.lane FROM known WHERE known.lane IS NOT NULL LIMIT p_most - cardinality(v_lanes)
            );
        END IF;
        EXIT WHEN cardinality(v_lanes) >= p_most OR v_after = v_first;
        v_end := v_after || E'\x01';
        v_after := v_first;
    END LOOP;
    more := false;
    IF cardinality(v_due) + cardinality(v_lanes) > 0 THEN
        more := {visit_lanes}(p_name, p_rule, p_keyed, p_closed, v_due || v_lanes, p_now);
    END IF;
    IF cardinality(v_lanes) >= p_most THEN
        cursor := v_lanes[cardinality(v_lanes)];
        more := true;
    END IF;
END $body$;
