-- Claiming jobs that have a limit.

-- How many jobs of each of these lanes may begin now (`rooms`, `p_most` at most); `only_ids`: the job that holds
-- an ordered lane. The caller has locked the turns, and passes how many claims of each have ended. `p_simple`:
-- only a number counts, so no function is called for each lane. Locks nothing. Primary keys, closing_lane.
CREATE OR REPLACE FUNCTION {lane_rooms}(
    p_turns {turn}[], p_ended integer[], p_weights double precision[], p_rule jsonb, p_keyed boolean, p_closed boolean, p_simple boolean,
    p_wanted integer, p_most integer, p_now timestamptz, OUT rooms integer[], OUT only_ids uuid[]
) LANGUAGE plpgsql AS $body$
DECLARE
    v_last double precision := p_turns[cardinality(p_turns)].tag;
    v_concurrency integer := (p_rule ->> 'concurrency')::integer;
BEGIN
    rooms := ARRAY(
        SELECT coalesce(p_most, least(p_wanted, 2 + floor((v_last - l.tag) * p_weights[l.ordinality])))::integer
        FROM unnest(p_turns) WITH ORDINALITY AS l ORDER BY l.ordinality
    );
    IF p_simple THEN
        rooms := ARRAY(
            SELECT greatest(0, least(rooms[l.ordinality], v_concurrency - l.running + p_ended[l.ordinality]))
            FROM unnest(p_turns) WITH ORDINALITY AS l ORDER BY l.ordinality
        );
    ELSE
        SELECT array_agg(o.room ORDER BY l.ordinality), array_agg(o.only_id ORDER BY l.ordinality) INTO rooms, only_ids
        FROM unnest(p_turns) WITH ORDINALITY AS l
        CROSS JOIN LATERAL {own_rule}(p_rule, p_keyed, l.lane) AS own
        CROSS JOIN LATERAL {lane_room}(
            l.lane, l.running - p_ended[l.ordinality], l.begun, l.begun_at, l.holder, own.rule, rooms[l.ordinality], p_closed, p_now
        ) AS o;
    END IF;
END $body$;

-- Take the turns of one limit, until its lanes have `p_number` jobs to offer, or there is no other one. Returns
-- the lanes (`turns`, `places`, how many of their claims have `ended`, `weights`), and what they offer
-- (`candidates`), in the order of their turns; `lanes` are positions among the former. If each lane gives
-- exactly one job, and nothing else competes (`p_alone`: the position of the only type), it gives these at once:
-- then they are deleted from `line`, `names` are their lanes, and `waiting` tells which have another job.
-- `number`: how many jobs there are up to the last turn taken; `sorted`: all of them are in their order; `more`: a
-- lane has even more; `behind`: there are other lanes; `missed`: another claim has locked lanes, or much is new.
--
-- Locks, without waiting: turns, in their order (primary key of `turn`); if `p_alone`, jobs in `line`. After the
-- turns are locked, the news of the lanes are taken, and only then the time, and what they may begin: what is
-- allowed now was not used up by another claim.
CREATE OR REPLACE FUNCTION {take_turns}(
    p_name text, p_rule jsonb, p_keyed boolean, p_closed boolean, p_number integer, p_kinds integer[], p_types text[], p_queues integer[],
    p_queue_priorities integer[], p_alone integer, p_now timestamptz,
    OUT turns {turn}[], OUT places tid[], OUT ended integer[], OUT weights double precision[], OUT lanes integer[], OUT job_places tid[],
    OUT ids uuid[], OUT kinds integer[], OUT priorities integer[], OUT times timestamptz[], OUT numbers bigint[], OUT waiting boolean[],
    OUT names text[], OUT number integer, OUT sorted boolean, OUT more boolean, OUT behind boolean, OUT missed boolean, OUT moment timestamptz
) LANGUAGE plpgsql AS $body$
DECLARE
    v_simple boolean := NOT p_keyed AND NOT p_closed AND jsonb_typeof(p_rule -> 'rate') IS DISTINCT FROM 'array'
        AND NOT coalesce((p_rule ->> 'ordered')::boolean, false);
    v_tag double precision := '-infinity';
    v_lane text COLLATE "C" := '';
    v_places tid[];
    v_turns {turn}[];
    v_news record;
    v_weights double precision[];
    v_first integer;
    v_each integer;
    v_left integer;
    v_most integer;
    v_rooms record;
    f record;
BEGIN
    number := 0;
    more := false;
    behind := false;
    missed := false;
    moment := p_now;
    LOOP
        v_left := p_number - number;
        EXIT WHEN v_left <= 0;
        SELECT array_agg(x.place), array_agg(x.turn) INTO v_places, v_turns FROM (
            SELECT t.ctid AS place, t AS turn FROM {turn} AS t
            WHERE t.name = p_name AND (t.tag, t.lane) > (v_tag, v_lane)
            ORDER BY t.tag, t.lane LIMIT v_left FOR UPDATE SKIP LOCKED
        ) AS x;
        EXIT WHEN v_turns IS NULL;
        v_first := coalesce(cardinality(places), 0);
        sorted := v_first = 0;
        v_each := cardinality(v_turns);
        v_tag := v_turns[v_each].tag;
        v_lane := v_turns[v_each].lane;
        IF p_keyed OR jsonb_typeof(p_rule -> 'weight') <> 'number' THEN
            v_weights := ARRAY(
                SELECT {lane_weight}(l.lane, own.rule) FROM unnest(v_turns) WITH ORDINALITY AS l
                CROSS JOIN LATERAL {own_rule}(p_rule, p_keyed, l.lane) AS own ORDER BY l.ordinality
            );
        ELSE
            v_weights := array_fill(coalesce((p_rule ->> 'weight')::double precision, 1), ARRAY[v_each]);
        END IF;
        v_news := {take_news}(v_turns);
        missed := missed OR v_news.more;
        moment := greatest(moment, {clock});
        turns := turns || v_turns;
        places := places || v_places;
        ended := ended || v_news.ended;
        weights := weights || v_weights;
        -- No second job is before the last lane.
        IF p_alone IS NOT NULL AND v_simple AND v_first = 0 AND v_each = p_number
            AND (v_tag - v_turns[1].tag) * v_weights[1] < 1 AND v_weights[1] = ALL (v_weights)
            AND NOT EXISTS (
                SELECT FROM unnest(v_turns, v_news.ended) AS l (name, tag, lane, running, begun, begun_at, holder, ended)
                WHERE l.running - l.ended >= (p_rule ->> 'concurrency')::integer
            )
        THEN
            SELECT e.ids, e.times, e.names, e.waiting INTO ids, times, names, waiting FROM {take_firsts}(v_turns, p_types[p_alone]) AS e;
            IF ids IS NOT NULL THEN
                kinds := array_fill(p_alone, ARRAY[v_each]);
                number := v_each;
                RETURN;
            END IF;
        END IF;
        -- If there are enough lanes, none is given more than those up to the turn of the last one. One more is
        -- read, to know whether there is one.
        v_most := CASE WHEN v_each = v_left THEN NULL WHEN v_each * v_left <= 300 THEN v_left ELSE 1 + 2 * v_left / v_each END;
        v_rooms := {lane_rooms}(v_turns, v_news.ended, v_weights, p_rule, p_keyed, p_closed, v_simple, v_left, v_most, moment);
        f := {candidates}(
            v_turns, v_rooms.rooms, v_rooms.only_ids, v_weights, p_kinds, p_types, p_queues, p_queue_priorities,
            CASE WHEN v_each = v_left THEN v_tag ELSE 'infinity' END
        );
        IF f.ids IS NOT NULL THEN
            lanes := lanes || ARRAY(SELECT v_first + n FROM unnest(f.lanes) AS n);
            job_places := job_places || f.places;
            ids := ids || f.ids;
            kinds := kinds || f.kinds;
            priorities := priorities || f.priorities;
            times := times || f.times;
            numbers := numbers || f.numbers;
        END IF;
        number := number + f.number;
        more := more OR coalesce(v_most = ANY (f.numbers), false);
    END LOOP;
    IF number >= p_number THEN
        behind := EXISTS (SELECT FROM {turn} AS t WHERE t.name = p_name AND (t.tag, t.lane) > (v_tag, v_lane));
    ELSE
        missed := missed OR EXISTS (SELECT FROM {turn} AS t WHERE t.name = p_name AND t.ctid <> ALL (coalesce(places, '{}')));
    END IF;
END $body$;

-- What the limits offer: for each of them, look at its news (one claim at a time does), and take turns. Returns what
-- `take_turns` returns, of all limits: `ends` is the last lane of each, `limits` the one of each job. `rules` and `cursors` are JSON, by the name of the limit. `p_beside`: there are
-- jobs without a limit.
--
-- Locks, for one limit after the other, without waiting: an advisory lock; lanes (`look_for_lanes`); turns and jobs
-- (`take_turns`).
CREATE OR REPLACE FUNCTION {offers}(
    p_names text[], p_cursors jsonb, p_closed boolean, p_number integer, p_left integer[], p_rooms integer[], p_beside boolean, p_most integer,
    p_pair_types integer[], p_pair_names text[], p_types text[], p_queues integer[], p_queue_priorities integer[], p_now timestamptz,
    OUT turns {turn}[], OUT places tid[], OUT ended integer[], OUT weights double precision[], OUT ends integer[], OUT limits integer[],
    OUT lanes integer[], OUT job_places tid[], OUT ids uuid[], OUT kinds integer[], OUT priorities integer[], OUT times timestamptz[],
    OUT numbers bigint[], OUT waiting boolean[], OUT names text[], OUT sorted boolean, OUT more boolean, OUT behind boolean, OUT missed boolean,
    OUT moment timestamptz, OUT rules jsonb, OUT cursors jsonb
) LANGUAGE plpgsql AS $body$
DECLARE
    v_name text;
    v_rule jsonb;
    v_keyed boolean;
    v_may_look boolean;
    v_kinds integer[];
    v_look record;
    v_first integer;
    t record;
BEGIN
    ends := '{}';
    more := false;
    behind := false;
    missed := false;
    moment := p_now;
    rules := '{}';
    cursors := p_cursors;
    FOREACH v_name IN ARRAY p_names LOOP
        SELECT {limit_rule}(v_name), EXISTS (SELECT FROM {limit_change} AS c WHERE c.lane > v_name AND c.lane < v_name || ' '),
            pg_try_advisory_xact_lock({lock_space}, hashtext('{lock_name}limit.' || v_name))
        INTO v_rule, v_keyed, v_may_look;
        rules := rules || jsonb_build_object(v_name, jsonb_build_array(v_rule, v_keyed));
        v_kinds := ARRAY(
            SELECT p.n FROM unnest(p_pair_types, p_pair_names) AS p (n, name)
            WHERE p.name = v_name AND p_left[p.n] > 0 AND (p_rooms[p_queues[p.n]] IS NULL OR p_rooms[p_queues[p.n]] > 0)
        );
        IF v_may_look THEN
            v_look := {look_for_lanes}(v_name, v_rule, v_keyed, p_closed, cursors ->> v_name, p_most, moment);
            cursors := cursors || jsonb_build_object(v_name, v_look.cursor);
            missed := missed OR v_look.more AND cardinality(v_kinds) > 0;
        ELSE
            missed := true;
        END IF;
        v_first := coalesce(cardinality(places), 0);
        IF cardinality(v_kinds) > 0 OR p_number <= 0 THEN
            t := {take_turns}(
                v_name, v_rule, v_keyed, p_closed, p_number, v_kinds, p_types, p_queues, p_queue_priorities,
                -- Each lane may give one job at once, if nothing competes.
                CASE WHEN cardinality(p_names) = 1 AND cardinality(v_kinds) = 1 AND NOT p_beside
                    AND p_number <= least(p_left[v_kinds[1]], coalesce(p_rooms[p_queues[v_kinds[1]]], p_number)) THEN v_kinds[1] END,
                moment
            );
            turns := turns || t.turns;
            places := places || t.places;
            ended := ended || t.ended;
            weights := weights || t.weights;
            IF t.ids IS NOT NULL THEN
                limits := limits || array_fill(cardinality(ends), ARRAY[cardinality(t.ids)]);
                lanes := lanes || CASE WHEN v_first = 0 THEN t.lanes ELSE ARRAY(SELECT v_first + n FROM unnest(t.lanes) AS n) END;
                job_places := job_places || t.job_places;
                ids := ids || t.ids;
                kinds := kinds || t.kinds;
                priorities := priorities || t.priorities;
                times := times || t.times;
                numbers := numbers || t.numbers;
            END IF;
            waiting := t.waiting;
            names := t.names;
            IF t.places IS NOT NULL THEN
                sorted := t.sorted AND v_first = 0;
            END IF;
            more := more OR t.more;
            behind := behind OR t.behind;
            missed := missed OR t.missed;
            moment := t.moment;
        END IF;
        ends := ends || coalesce(cardinality(places), 0);
    END LOOP;
END $body$;

-- Choose among what limits offer, `p_number` jobs at most, of them and of the jobs without a limit together
-- `p_beside`. The heads of all limits and the next job without a limit (`p_other_…`, in their order) compete for
-- each place. So a job comes after all that are before it in its limit, also if it is more urgent. Returns
-- positions; `more`: others were left. Locks nothing.
CREATE OR REPLACE FUNCTION {choose}(
    p_number integer, p_beside integer, p_left integer[], p_rooms integer[], p_queues integer[], p_queue_priorities integer[],
    p_sorted boolean, p_limits integer[], p_lanes integer[], p_numbers bigint[], p_kinds integer[], p_priorities integer[],
    p_times timestamptz[], p_ids uuid[], p_turns {turn}[], p_weights double precision[],
    p_other_queues integer[], p_other_priorities integer[], p_other_times timestamptz[], p_other_ids uuid[],
    OUT chosen integer[], OUT more boolean
) LANGUAGE plpgsql AS $body$
DECLARE
    v_left integer[] := p_left;
    v_rooms integer[] := p_rooms;
    v_order integer[];
    v_beside integer := 0;
    v_each integer;
BEGIN
    IF p_other_ids IS NULL AND p_sorted THEN
        v_order := ARRAY(SELECT generate_series(1, cardinality(p_ids)));
    ELSE
        v_order := ARRAY(
            SELECT head.n FROM (
                SELECT each.n, each.place, max(each.rank) OVER (PARTITION BY each.of_limit ORDER BY each.place) AS rank FROM (
                    SELECT both_kinds.n, both_kinds.of_limit, row_number() OVER (ORDER BY both_kinds.queue, both_kinds.priority, both_kinds.time, both_kinds.id) AS rank,
                        row_number() OVER (PARTITION BY both_kinds.of_limit ORDER BY both_kinds.queue, both_kinds.turn, both_kinds.key, both_kinds.n) AS place
                    FROM (
                        SELECT c.n, c.of_limit, (p_turns[c.lane]).tag + (c.number - 1) / p_weights[c.lane] AS turn, (p_turns[c.lane]).lane AS key,
                            p_queue_priorities[p_queues[c.kind]] AS queue, c.priority, c.time, c.id
                        FROM unnest(p_limits, p_lanes, p_numbers, p_kinds, p_priorities, p_times, p_ids) WITH ORDINALITY
                            AS c (of_limit, lane, number, kind, priority, time, id, n)
                        UNION ALL
                        SELECT cardinality(p_ids) + w.n, -1, 0, '', w.queue, w.priority, w.time, w.id
                        FROM unnest(p_other_queues, p_other_priorities, p_other_times, p_other_ids) WITH ORDINALITY
                            AS w (queue, priority, time, id, n)
                    ) AS both_kinds
                ) AS each
            ) AS head ORDER BY head.rank, head.place
        );
    END IF;
    IF p_other_ids IS NULL AND p_rooms IS NULL AND p_number <= ALL (p_left) THEN
        chosen := v_order[1:least(p_number, p_beside)];
        more := cardinality(v_order) > cardinality(chosen);
        RETURN;
    END IF;
    chosen := '{}';
    more := false;
    FOREACH v_each IN ARRAY v_order LOOP
        IF v_each > cardinality(p_ids) THEN
            v_beside := v_beside + 1;
            CONTINUE;
        END IF;
        IF cardinality(chosen) >= p_number OR cardinality(chosen) + v_beside >= p_beside THEN
            more := true;
            RETURN;
        END IF;
        CONTINUE WHEN v_left[p_kinds[v_each]] <= 0 OR v_rooms[p_queues[p_kinds[v_each]]] <= 0;
        v_left[p_kinds[v_each]] := v_left[p_kinds[v_each]] - 1;
        v_rooms[p_queues[p_kinds[v_each]]] := v_rooms[p_queues[p_kinds[v_each]]] - 1;
        chosen := chosen || v_each;
    END LOOP;
END $body$;

-- Take what was chosen: only what could be locked is taken, and counted. A job that is being cancelled stays.
-- Returns the positions of those that were deleted from `line`. Locks: their rows by their places, skipping
-- locked ones: rows of `line` are never updated, so their ctids are right.
CREATE OR REPLACE FUNCTION {take_chosen}(p_chosen integer[], p_places tid[], p_ids uuid[]) RETURNS integer[] LANGUAGE plpgsql AS $body$
DECLARE
    v_chosen integer[] := p_chosen;
    v_places tid[] := ARRAY(SELECT p_places[n] FROM unnest(p_chosen) AS n);
    v_ids uuid[];
BEGIN
    v_ids := ARRAY(SELECT w.id FROM {line} AS w WHERE w.ctid = ANY (v_places) FOR UPDATE SKIP LOCKED);
    IF cardinality(v_ids) < cardinality(v_chosen) THEN
        v_chosen := ARRAY(SELECT c.n FROM unnest(p_chosen) WITH ORDINALITY AS c (n, place) WHERE p_ids[c.n] = ANY (v_ids) ORDER BY c.place);
        v_places := ARRAY(SELECT p_places[n] FROM unnest(v_chosen) AS n);
    END IF;
    DELETE FROM {line} WHERE ctid = ANY (v_places);
    RETURN v_chosen;
END $body$;

-- Put the lanes back whose turns were taken, with what they gave: `p_chosen` of what they offered, or one job each
-- (then `p_waiting` is given). The caller has locked the turns. Returns how many lanes there are. Locks: rows of
-- `lane` of those that close, which no other claim locks as long as they are open (`place_lanes`).
CREATE OR REPLACE FUNCTION {return_turns}(
    p_names text[], p_rules jsonb, p_closed boolean, p_turns {turn}[], p_places tid[], p_ended integer[], p_weights double precision[],
    p_ends integer[], p_lanes integer[], p_numbers bigint[], p_ids uuid[], p_chosen integer[], p_waiting boolean[], p_now timestamptz
) RETURNS integer LANGUAGE plpgsql AS $body$
DECLARE
    v_number integer := cardinality(p_places);
    v_taken integer[] := array_fill(CASE WHEN p_waiting IS NULL THEN 0 ELSE 1 END, ARRAY[v_number]);
    v_waiting boolean[] := p_waiting;
    v_holders uuid[];
    v_each integer;
    v_first integer := 1;
BEGIN
    DELETE FROM {turn} WHERE ctid = ANY (p_places);
    IF p_waiting IS NULL THEN
        v_waiting := array_fill(false, ARRAY[v_number]);
        v_holders := array_fill(NULL::uuid, ARRAY[v_number]);
        FOREACH v_each IN ARRAY p_chosen LOOP
            v_taken[p_lanes[v_each]] := v_taken[p_lanes[v_each]] + 1;
            v_holders[p_lanes[v_each]] := p_ids[v_each];
        END LOOP;
        -- What is offered is in the order of the line: the last one of each lane tells.
        FOR v_each IN 1..coalesce(cardinality(p_ids), 0) LOOP
            v_waiting[p_lanes[v_each]] := p_numbers[v_each] > v_taken[p_lanes[v_each]];
        END LOOP;
    END IF;
    FOR v_each IN 1..cardinality(p_names) LOOP
        IF p_ends[v_each] >= v_first THEN
            PERFORM {place_lanes}(
                p_names[v_each], p_rules -> p_names[v_each] -> 0, (p_rules -> p_names[v_each] ->> 1)::boolean, p_closed, true,
                p_turns[v_first:p_ends[v_each]], p_ended[v_first:p_ends[v_each]], v_taken[v_first:p_ends[v_each]],
                v_waiting[v_first:p_ends[v_each]], p_weights[v_first:p_ends[v_each]], v_holders[v_first:p_ends[v_each]], p_now
            );
        END IF;
        v_first := p_ends[v_each] + 1;
    END LOOP;
    RETURN v_number;
END $body$;

-- Claim jobs with a limit, `p_limit` at most. `p_types`, `p_queues`, `p_limits` and the rest are as
-- in `claim`; `p_pair_types` and `p_pair_names`: positions of types, and the limits that their jobs
-- may have. `p_beside`: how many jobs the whole claim may take: those without a limit compete.
--
-- Returns the columns of `claim`. The first row has `more` and `next_in`, in `blockers` the lanes to go on
-- looking from, as JSON, and in `ran_before` whether `claim` may find jobs without a limit, or has to tell of
-- pauses. If not, `next_in` is also right for these.
--
-- Locks, in this order: an advisory lock for each cap, which is waited for (`allowed`). Then, without waiting: rows
-- of `later`; for each limit an advisory lock, lanes, turns (`offers`); waiting jobs (`take_chosen`). All of these
-- are skipped if another transaction has them.
CREATE OR REPLACE FUNCTION {claim_limited}(
    p_worker text, p_limit integer, p_beside integer, p_types text[], p_queues integer[], p_limits integer[], p_leases double precision[],
    p_pair_types integer[], p_pair_names text[], p_queue_names text[], p_queue_priorities integer[], p_queue_caps integer[],
    p_member_queues integer[], p_member_types text[], p_cluster_cap integer, p_cursors text,
    p_token bigint, p_statistics boolean
) RETURNS TABLE ({claimed_types}) LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz := {clock};
    v_names text[] := p_pair_names;
    -- What is allowed: see `allowed`.
    v_rooms integer[];
    v_total bigint;
    v_left integer[] := p_limits;
    v_shut integer[] := '{}';
    v_paused boolean := false;
    v_closed boolean := false;
    v_due boolean;
    v_number integer;
    -- The first jobs without a limit, and what limits offer.
    b record;
    o record;
    v_turns {turn}[];
    v_choice record;
    v_taken integer[] := '{}';
    v_ids uuid[] := '{}';
    v_kinds integer[];
    v_since timestamptz[];
    v_lanes text[];
    v_begun integer := 0;
BEGIN
    IF cardinality(v_names) > 1 THEN
        v_names := ARRAY(SELECT DISTINCT name FROM unnest(p_pair_names) AS name ORDER BY name);
    END IF;
    -- What is allowed, and what is due. OFFSET, here and below: otherwise, a plan may hash all of these tables.
    IF p_cluster_cap IS NOT NULL OR array_remove(p_queue_caps, NULL) <> '{}' OR EXISTS (SELECT FROM {pause}) THEN
        SELECT a.moment, a.rooms, a.total, a.left_over, a.shut, a.pauses INTO v_now, v_rooms, v_total, v_left, v_shut, v_paused
        FROM {allowed}(p_types, p_queues, p_limits, p_queue_names, p_queue_caps, p_member_queues, p_member_types, p_cluster_cap) AS a;
        v_closed := v_paused AND EXISTS (SELECT FROM {pause} AS p WHERE p.scope = 'key');
    END IF;
    v_number := least(p_limit, v_total);
    SELECT v_closed OR EXISTS (SELECT FROM {closing}), EXISTS (
        SELECT FROM unnest(p_types) AS asked (name) WHERE EXISTS (
            SELECT FROM {later} AS l WHERE l.type_name = asked.name AND l.scheduled_at <= v_now ORDER BY l.scheduled_at LIMIT 1 OFFSET 0
        )
    ) INTO v_closed, v_due;
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
    o := {offers}(
        v_names, coalesce(p_cursors::jsonb, '{}'), v_closed, v_number, v_left, v_rooms, b.ids IS NOT NULL OR v_number > p_beside,
        greatest(50, p_limit), p_pair_types, p_pair_names, p_types, p_queues, p_queue_priorities, v_now
    );
    v_now := o.moment;
    more := o.more;
    IF o.waiting IS NOT NULL THEN
        v_ids := o.ids;
        v_kinds := o.kinds;
        v_since := o.times;
        v_lanes := o.names;
    ELSIF o.ids IS NOT NULL THEN
        v_turns := o.turns;
        v_choice := {choose}(
            v_number, p_beside, v_left, v_rooms, p_queues, p_queue_priorities, o.sorted, o.limits, o.lanes, o.numbers,
            o.kinds, o.priorities, o.times, o.ids, v_turns, o.weights, b.queues, b.priorities, b.times, b.ids
        );
        more := more OR v_choice.more;
        v_taken := {take_chosen}(v_choice.chosen, o.job_places, o.ids);
        SELECT coalesce(array_agg(o.ids[t.n] ORDER BY t.place), '{}'), array_agg(o.kinds[t.n] ORDER BY t.place),
            array_agg(o.times[t.n] ORDER BY t.place), array_agg((v_turns[o.lanes[t.n]]).lane ORDER BY t.place)
        INTO v_ids, v_kinds, v_since, v_lanes FROM unnest(v_taken) WITH ORDINALITY AS t (n, place);
    END IF;
    IF cardinality(v_ids) > 0 THEN
        v_begun := {begin_jobs}(
            v_ids, v_kinds, v_since, v_lanes, p_types, p_queues, p_queue_names, p_leases, p_worker, p_token, NULL, NULL, p_statistics, v_now
        );
    END IF;
    IF o.places IS NOT NULL THEN
        PERFORM {return_turns}(
            v_names, o.rules, v_closed, o.turns, o.places, o.ended, o.weights, o.ends, o.lanes, o.numbers, o.ids, v_taken, o.waiting, v_now
        );
    END IF;

    -- Count what is left.
    IF o.waiting IS NOT NULL THEN
        -- After the lanes were placed: also those that stay open.
        more := EXISTS (SELECT FROM {turn} AS t WHERE t.name = v_names[1]);
    ELSIF o.behind AND v_begun >= v_number THEN
        more := true;
    END IF;
    SELECT v_paused OR b.ids IS NOT NULL OR EXISTS (
        SELECT FROM unnest(p_types) AS asked (type_name)
        WHERE EXISTS (SELECT FROM {ready} AS e WHERE e.type_name = asked.type_name ORDER BY e.priority, e.scheduled_at, e.id LIMIT 1 OFFSET 0)
            OR EXISTS (SELECT FROM {later} AS l WHERE l.type_name = asked.type_name AND l.scheduled_at <= v_now ORDER BY l.scheduled_at LIMIT 1 OFFSET 0)
    ), extract(epoch FROM least(
        -- Another claim has locked lanes, and may leave jobs.
        CASE WHEN o.missed AND v_begun < v_number THEN v_now + interval '20 milliseconds' END,
        (
            SELECT min(soon.at) FROM unnest(v_names) AS asked (name)
            CROSS JOIN LATERAL (SELECT r.at FROM {reopen} AS r WHERE r.name = asked.name AND r.at > v_now ORDER BY r.at, r.lane LIMIT 1) AS soon
        ), (
            SELECT min(due.scheduled_at) FROM unnest(p_types) WITH ORDINALITY AS asked (type_name, n)
            CROSS JOIN LATERAL (
                SELECT l.scheduled_at FROM {later} AS l WHERE l.type_name = asked.type_name AND l.scheduled_at > v_now AND l.scheduled_at < 'infinity'
                ORDER BY l.scheduled_at LIMIT 1
            ) AS due
            WHERE asked.n <> ALL (v_shut)
        )
    ) - v_now)::double precision INTO ran_before, next_in;
    blockers := o.cursors;
    claimed_at := v_now;
    RETURN NEXT;
    IF v_begun > 0 THEN
        -- As in `claim`.
        RETURN QUERY
        WITH jobs AS MATERIALIZED (SELECT * FROM {claimed_jobs}(v_ids, p_token, NULL, NULL, v_now)), held_back AS (
            UPDATE {running} AS r SET ordinal = j.ordinal FROM jobs AS j WHERE j.ordinal = {not_begun} AND r.job_id = j.id::uuid
        )
        SELECT * FROM jobs;
    END IF;
END $body$;
