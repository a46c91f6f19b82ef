-- What happened to jobs. Rows are only ever added to `tally`, so those who add never wait for each
-- other. One process at a time merges them into `history`.

-- A row of `tally` by buckets. Moments without an end were written by hand. Jobs that were started
-- or claimed together have the same moment: it is looked at once.
CREATE OR REPLACE FUNCTION {expand}(p_at timestamptz, p_number integer, p_since timestamptz[])
RETURNS TABLE (bucket integer, fine integer, number integer, seconds double precision) LANGUAGE sql STABLE AS $body$
    SELECT width_bucket(each.took, {bounds}), width_bucket(each.took, {fine_bounds}), sign(p_number)::integer * each.number,
        sign(p_number) * each.took * each.number
    FROM (
        SELECT same.number, CASE WHEN isfinite(same.moment) THEN greatest(0, date_part('epoch', p_at - same.moment)) ELSE 0 END AS took
        FROM (SELECT moment, count(*)::integer AS number FROM unnest(p_since) AS moment GROUP BY moment) AS same OFFSET 0
    ) AS each
    UNION ALL
    SELECT {untimed}, NULL, p_number - (sign(p_number) * cardinality(p_since))::integer, 0
    WHERE abs(p_number) > cardinality(p_since)
$body$;

-- Two values with fine buckets as one. In each element, the number of the bucket is in the last ten
-- bits.
CREATE OR REPLACE FUNCTION {add_fine}(p_one bigint[], p_two bigint[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE AS $body$
    SELECT array_agg(total.number << 10 | total.bucket ORDER BY total.bucket)
    FROM (
        SELECT each & 1023 AS bucket, sum(each >> 10)::bigint AS number FROM unnest(p_one || p_two) AS each GROUP BY 1
    ) AS total WHERE total.number <> 0
$body$;

-- Take back the beginning of attempts that did not begin after all. The caller has locked the
-- claims, and deletes them next. Primary keys.
CREATE OR REPLACE FUNCTION {uncount}(p_ids uuid[]) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO {tally} (at, type_name, what, number, since)
    SELECT r.started_at, r.type_name, 'begun', -count(*), array_agg(j.scheduled_at)
    FROM unnest(p_ids) AS asked (id) JOIN {running} AS r ON r.job_id = asked.id JOIN {job} AS j ON j.id = asked.id
    GROUP BY r.started_at, r.type_name;
END $body$;

-- One step: merge so many rows of `tally` into minutes, from this place on, and so many minutes and
-- hours that are old into hours and days; delete so many days that are old. Returns where to go on;
-- null: nothing is left to do. Rows before that place may be dead: an old snapshot keeps them. Locks:
-- an advisory lock, which is not waited for. Primary key.
CREATE OR REPLACE FUNCTION {roll_up}(p_limit integer, p_after text) RETURNS text LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_now double precision;
    v_places tid[];
    v_next text;
    v_more boolean := false;
    v_level record;
BEGIN
    IF NOT pg_try_advisory_xact_lock({lock_space}, hashtext('{lock_name}history')) THEN
        RETURN NULL;
    END IF;
    v_now := date_part('epoch', {clock});
    v_places := array(SELECT t.ctid FROM {tally} AS t WHERE t.ctid > coalesce(p_after, '(0,0)')::tid LIMIT p_limit);
    IF cardinality(v_places) > 0 THEN
        WITH taken AS (
            DELETE FROM {tally} AS t WHERE t.ctid = ANY (v_places) RETURNING t.at, t.type_name, t.what, t.number, t.since
        ), fine AS MATERIALIZED (
            SELECT floor(date_part('epoch', t.at) / 60)::bigint * 60 AS at, t.type_name, t.what, e.bucket, e.fine,
                sum(e.number)::bigint AS number, sum(e.seconds) AS seconds
            FROM taken AS t CROSS JOIN LATERAL {expand}(t.at, t.number, t.since) AS e
            GROUP BY 1, t.type_name, t.what, e.bucket, e.fine
        )
        INSERT INTO {history} AS h (grain, at, type_name, what, bucket, number, seconds, fine)
        SELECT 60, f.at, f.type_name, f.what, f.bucket, sum(f.number), sum(f.seconds), NULL
        FROM fine AS f GROUP BY f.at, f.type_name, f.what, f.bucket
        UNION ALL
        SELECT 60, f.at, f.type_name, f.what, {details}, 0, 0, array_agg(f.number << 10 | f.fine ORDER BY f.fine)
        FROM fine AS f WHERE f.fine IS NOT NULL GROUP BY f.at, f.type_name, f.what
        ON CONFLICT (grain, at, type_name, what, bucket) DO UPDATE SET
            number = h.number + excluded.number, seconds = h.seconds + excluded.seconds,
            fine = CASE WHEN h.bucket = {details} THEN {add_fine}(h.fine, excluded.fine) END;
        IF cardinality(v_places) >= p_limit THEN
            v_next := v_places[cardinality(v_places)];
        END IF;
    END IF;
    FOR v_level IN
        SELECT l.fine, l.coarse, floor((v_now - l.kept) / l.coarse)::bigint * l.coarse AS before
        FROM (VALUES (60, 3600, {minutes_kept}), (3600, 86400, {hours_kept})) AS l (fine, coarse, kept)
    LOOP
        v_places := array(
            SELECT h.ctid FROM {history} AS h WHERE h.grain = v_level.fine AND h.at < v_level.before ORDER BY h.grain, h.at LIMIT p_limit
        );
        IF cardinality(v_places) > 0 THEN
            WITH old AS (DELETE FROM {history} AS h WHERE h.ctid = ANY (v_places) RETURNING h.*)
            INSERT INTO {history} AS h (grain, at, type_name, what, bucket, number, seconds, fine)
            SELECT v_level.coarse, o.at / v_level.coarse * v_level.coarse AS at, o.type_name, o.what, o.bucket, sum(o.number), sum(o.seconds), NULL
            FROM old AS o WHERE o.bucket <> {details} GROUP BY 2, o.type_name, o.what, o.bucket
            UNION ALL
            SELECT v_level.coarse, f.at, f.type_name, f.what, {details}, 0, 0, array_agg(f.number << 10 | f.bucket ORDER BY f.bucket)
            FROM (
                SELECT o.at / v_level.coarse * v_level.coarse AS at, o.type_name, o.what, each & 1023 AS bucket, sum(each >> 10)::bigint AS number
                FROM old AS o CROSS JOIN unnest(o.fine) AS each GROUP BY 1, o.type_name, o.what, 4
            ) AS f WHERE f.number <> 0 GROUP BY f.at, f.type_name, f.what
            ON CONFLICT (grain, at, type_name, what, bucket) DO UPDATE SET
                number = h.number + excluded.number, seconds = h.seconds + excluded.seconds,
                fine = CASE WHEN h.bucket = {details} THEN {add_fine}(h.fine, excluded.fine) END;
            v_more := v_more OR cardinality(v_places) >= p_limit;
        END IF;
    END LOOP;
    v_places := array(
        SELECT h.ctid FROM {history} AS h WHERE h.grain = 86400 AND h.at < floor((v_now - {history_kept}) / 86400)::bigint * 86400
        ORDER BY h.grain, h.at LIMIT p_limit
    );
    IF cardinality(v_places) > 0 THEN
        DELETE FROM {history} AS h WHERE h.ctid = ANY (v_places);
        v_more := v_more OR cardinality(v_places) >= p_limit;
    END IF;
    RETURN CASE WHEN v_next IS NOT NULL THEN v_next WHEN v_more THEN '(0,0)' END;
END $body$;
