-- Listings: the ids of jobs along an index, for each combination of values, at most `p_limit` of
-- each. They begin with `p_start`, and go down from there if `p_descending`. Nothing is locked.
--
-- Ranges of rows, sorted by all columns of the index although all but the last are equal: no other
-- index has this order. With `=`, the planner would rather walk along the primary key if rows with
-- an average value are frequent, and read the whole table if those with this value are rare. Nor
-- may it sort: it would read all rows with these values first.

-- Jobs by type, in any order. Indexes job_first and job_next. Where the table was large when job_next
-- came, there may be one index for both instead: job_type.
CREATE OR REPLACE FUNCTION {typed_jobs}(p_types text[], p_start uuid, p_descending boolean, p_limit bigint)
RETURNS SETOF uuid LANGUAGE plpgsql {steady} SET enable_sort TO off AS $body$
BEGIN
    IF to_regclass({schema_text} || '.' || {job_type_text}) IS NULL THEN
        RETURN QUERY SELECT * FROM {first_jobs}(p_types, p_start, p_descending, p_limit);
        RETURN QUERY SELECT * FROM {next_jobs}(p_types, p_start, p_descending, p_limit);
    ELSIF p_descending THEN
        RETURN QUERY
        SELECT w.id FROM unnest(p_types) AS t (name)
        CROSS JOIN LATERAL (
            SELECT j.id FROM {job} AS j WHERE (j.type_name, j.id) <= (t.name, p_start) AND j.type_name >= t.name
            ORDER BY j.type_name DESC, j.id DESC LIMIT p_limit
        ) AS w;
    ELSE
        RETURN QUERY
        SELECT w.id FROM unnest(p_types) AS t (name)
        CROSS JOIN LATERAL (
            SELECT j.id FROM {job} AS j WHERE (j.type_name, j.id) >= (t.name, p_start) AND j.type_name <= t.name
            ORDER BY j.type_name, j.id LIMIT p_limit
        ) AS w;
    END IF;
END $body$;

-- All but the first jobs of chains, by type. Index job_next.
CREATE OR REPLACE FUNCTION {next_jobs}(p_types text[], p_start uuid, p_descending boolean, p_limit bigint)
RETURNS SETOF uuid LANGUAGE plpgsql {steady} SET enable_sort TO off AS $body$
BEGIN
    IF p_descending THEN
        RETURN QUERY
        SELECT w.id FROM unnest(p_types) AS t (name)
        CROSS JOIN LATERAL (
            SELECT j.id FROM {job} AS j WHERE j.chain_index > 0 AND (j.type_name, j.id) <= (t.name, p_start) AND j.type_name >= t.name
            ORDER BY j.type_name DESC, j.id DESC LIMIT p_limit
        ) AS w;
    ELSE
        RETURN QUERY
        SELECT w.id FROM unnest(p_types) AS t (name)
        CROSS JOIN LATERAL (
            SELECT j.id FROM {job} AS j WHERE j.chain_index > 0 AND (j.type_name, j.id) >= (t.name, p_start) AND j.type_name <= t.name
            ORDER BY j.type_name, j.id LIMIT p_limit
        ) AS w;
    END IF;
END $body$;

-- Chains by type: their first jobs. Index job_first.
CREATE OR REPLACE FUNCTION {first_jobs}(p_types text[], p_start uuid, p_descending boolean, p_limit bigint)
RETURNS SETOF uuid LANGUAGE plpgsql {steady} SET enable_sort TO off AS $body$
BEGIN
    IF p_descending THEN
        RETURN QUERY
        SELECT w.id FROM unnest(p_types) AS t (name)
        CROSS JOIN LATERAL (
            SELECT j.id FROM {job} AS j WHERE j.chain_index = 0 AND (j.type_name, j.id) <= (t.name, p_start) AND j.type_name >= t.name
            ORDER BY j.type_name DESC, j.id DESC LIMIT p_limit
        ) AS w;
    ELSE
        RETURN QUERY
        SELECT w.id FROM unnest(p_types) AS t (name)
        CROSS JOIN LATERAL (
            SELECT j.id FROM {job} AS j WHERE j.chain_index = 0 AND (j.type_name, j.id) >= (t.name, p_start) AND j.type_name <= t.name
            ORDER BY j.type_name, j.id LIMIT p_limit
        ) AS w;
    END IF;
END $body$;

-- Jobs by status, if it is one of those that `resting` has. Index job_resting.
CREATE OR REPLACE FUNCTION {resting_jobs}(p_statuses text[], p_start uuid, p_descending boolean, p_limit bigint)
RETURNS SETOF uuid LANGUAGE plpgsql {steady} SET enable_sort TO off AS $body$
BEGIN
    IF p_descending THEN
        RETURN QUERY
        SELECT w.id FROM unnest(p_statuses) AS s (status)
        CROSS JOIN LATERAL (
            SELECT j.id FROM {job} AS j WHERE j.resting IS NOT NULL AND (j.resting, j.id) <= (s.status, p_start) AND j.resting >= s.status
            ORDER BY j.resting DESC, j.id DESC LIMIT p_limit
        ) AS w;
    ELSE
        RETURN QUERY
        SELECT w.id FROM unnest(p_statuses) AS s (status)
        CROSS JOIN LATERAL (
            SELECT j.id FROM {job} AS j WHERE j.resting IS NOT NULL AND (j.resting, j.id) >= (s.status, p_start) AND j.resting <= s.status
            ORDER BY j.resting, j.id LIMIT p_limit
        ) AS w;
    END IF;
END $body$;

-- The same, by type too. Index job_resting_type.
CREATE OR REPLACE FUNCTION {resting_types}(p_types text[], p_statuses text[], p_start uuid, p_descending boolean, p_limit bigint)
RETURNS SETOF uuid LANGUAGE plpgsql {steady} SET enable_sort TO off AS $body$
BEGIN
    IF p_descending THEN
        RETURN QUERY
        SELECT w.id FROM unnest(p_types) AS t (name) CROSS JOIN unnest(p_statuses) AS s (status)
        CROSS JOIN LATERAL (
            SELECT j.id FROM {job} AS j WHERE j.resting IS NOT NULL AND (j.type_name, j.resting, j.id) <= (t.name, s.status, p_start) AND (j.type_name, j.resting) >= (t.name, s.status)
            ORDER BY j.type_name DESC, j.resting DESC, j.id DESC LIMIT p_limit
        ) AS w;
    ELSE
        RETURN QUERY
        SELECT w.id FROM unnest(p_types) AS t (name) CROSS JOIN unnest(p_statuses) AS s (status)
        CROSS JOIN LATERAL (
            SELECT j.id FROM {job} AS j WHERE j.resting IS NOT NULL AND (j.type_name, j.resting, j.id) >= (t.name, s.status, p_start) AND (j.type_name, j.resting) <= (t.name, s.status)
            ORDER BY j.type_name, j.resting, j.id LIMIT p_limit
        ) AS w;
    END IF;
END $body$;

-- The same, by the type of the chain. Index job_resting_chain.
CREATE OR REPLACE FUNCTION {resting_chains}(p_types text[], p_statuses text[], p_start uuid, p_descending boolean, p_limit bigint)
RETURNS SETOF uuid LANGUAGE plpgsql {steady} SET enable_sort TO off AS $body$
BEGIN
    IF p_descending THEN
        RETURN QUERY
        SELECT w.id FROM unnest(p_types) AS t (name) CROSS JOIN unnest(p_statuses) AS s (status)
        CROSS JOIN LATERAL (
            SELECT j.id FROM {job} AS j WHERE j.resting IS NOT NULL AND (j.chain_type, j.resting, j.id) <= (t.name, s.status, p_start) AND (j.chain_type, j.resting) >= (t.name, s.status)
            ORDER BY j.chain_type DESC, j.resting DESC, j.id DESC LIMIT p_limit
        ) AS w;
    ELSE
        RETURN QUERY
        SELECT w.id FROM unnest(p_types) AS t (name) CROSS JOIN unnest(p_statuses) AS s (status)
        CROSS JOIN LATERAL (
            SELECT j.id FROM {job} AS j WHERE j.resting IS NOT NULL AND (j.chain_type, j.resting, j.id) >= (t.name, s.status, p_start) AND (j.chain_type, j.resting) <= (t.name, s.status)
            ORDER BY j.chain_type, j.resting, j.id LIMIT p_limit
        ) AS w;
    END IF;
END $body$;

-- Pending jobs by type; NULL: of all types. Indexes ready_listed, line_listed and later_listed. It sees
-- what the statement sees that calls it: a job that is in these tables there is not running.
CREATE OR REPLACE FUNCTION {pending_jobs}(p_types text[], p_start uuid, p_descending boolean, p_limit bigint)
RETURNS SETOF uuid LANGUAGE plpgsql STABLE {steady} SET enable_sort TO off AS $body$
DECLARE
    v_types text[] := p_types;
    v_type text := '';
BEGIN
    IF v_types IS NULL THEN
        v_types := '{}';
        LOOP
            v_type := (SELECT min(next.name) FROM (
                (SELECT r.type_name FROM {ready} AS r WHERE r.type_name > v_type ORDER BY r.type_name LIMIT 1)
                UNION ALL (SELECT i.type_name FROM {line} AS i WHERE i.type_name > v_type ORDER BY i.type_name LIMIT 1)
                UNION ALL (SELECT l.type_name FROM {later} AS l WHERE l.type_name > v_type ORDER BY l.type_name LIMIT 1)
            ) AS next (name));
            EXIT WHEN v_type IS NULL;
            v_types := v_types || v_type;
        END LOOP;
    END IF;
    IF p_descending THEN
        RETURN QUERY
        SELECT w.id FROM unnest(v_types) AS t (name)
        CROSS JOIN LATERAL (
            SELECT j.id FROM {ready} AS j WHERE (j.type_name, j.id) <= (t.name, p_start) AND j.type_name >= t.name
            ORDER BY j.type_name DESC, j.id DESC LIMIT p_limit
        ) AS w;
        RETURN QUERY
        SELECT w.id FROM unnest(v_types) AS t (name)
        CROSS JOIN LATERAL (
            SELECT j.id FROM {line} AS j WHERE (j.type_name, j.id) <= (t.name, p_start) AND j.type_name >= t.name
            ORDER BY j.type_name DESC, j.id DESC LIMIT p_limit
        ) AS w;
        RETURN QUERY
        SELECT w.id FROM unnest(v_types) AS t (name)
        CROSS JOIN LATERAL (
            SELECT j.id FROM {later} AS j WHERE (j.type_name, j.id) <= (t.name, p_start) AND j.type_name >= t.name
            ORDER BY j.type_name DESC, j.id DESC LIMIT p_limit
        ) AS w;
    ELSE
        RETURN QUERY
        SELECT w.id FROM unnest(v_types) AS t (name)
        CROSS JOIN LATERAL (
            SELECT j.id FROM {ready} AS j WHERE (j.type_name, j.id) >= (t.name, p_start) AND j.type_name <= t.name
            ORDER BY j.type_name, j.id LIMIT p_limit
        ) AS w;
        RETURN QUERY
        SELECT w.id FROM unnest(v_types) AS t (name)
        CROSS JOIN LATERAL (
            SELECT j.id FROM {line} AS j WHERE (j.type_name, j.id) >= (t.name, p_start) AND j.type_name <= t.name
            ORDER BY j.type_name, j.id LIMIT p_limit
        ) AS w;
        RETURN QUERY
        SELECT w.id FROM unnest(v_types) AS t (name)
        CROSS JOIN LATERAL (
            SELECT j.id FROM {later} AS j WHERE (j.type_name, j.id) >= (t.name, p_start) AND j.type_name <= t.name
            ORDER BY j.type_name, j.id LIMIT p_limit
        ) AS w;
    END IF;
END $body$;
