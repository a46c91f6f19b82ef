-- What is paused.

-- The pauses that are in the way of these types (`p_queues[i]` is the name of the queue of
-- `p_types[i]`): the positions of the types that they cover, when the first of them ends, and the
-- pauses themselves, with those of keys whose running jobs have to stop. One row, of nulls if there are none. Reads the whole table, which is tiny, and
-- locks nothing.
CREATE OR REPLACE FUNCTION {pauses_of}(p_types text[], p_queues text[], p_now timestamptz)
RETURNS TABLE (shut integer[], until timestamptz, paused text) LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH covered AS MATERIALIZED (
        SELECT t.n::integer AS n, p.* FROM {pause} AS p
        JOIN unnest(p_types, p_queues) WITH ORDINALITY AS t (type_name, queue, n)
            ON CASE p.scope WHEN 'type' THEN t.type_name = p.name WHEN 'queue' THEN t.queue = p.name WHEN 'key' THEN false ELSE left(t.type_name, 8) <> 'queuert.' END
        WHERE p.until IS NULL OR p.until > p_now
        UNION ALL
        SELECT NULL, p.* FROM {pause} AS p WHERE p.scope = 'key' AND p.cancel_running AND (p.until IS NULL OR p.until > p_now)
    )
    SELECT array_agg(DISTINCT c.n) FILTER (WHERE c.n IS NOT NULL), min(c.until) FILTER (WHERE c.n IS NOT NULL), (
        SELECT json_agg(json_build_array(
            d.scope, d.name, (extract(epoch FROM d.since) * 1000000)::bigint, (extract(epoch FROM d.until) * 1000000)::bigint,
            d.reason, d.paused_by, d.cancel_running
        ))::text FROM (SELECT DISTINCT ON (scope, name) * FROM covered ORDER BY scope, name) AS d
    ) FROM covered AS c;
END $body$;
