-- What happened to jobs.

-- What is merged, and what is not yet, in one snapshot; and a row with the time. Primary key; all of
-- `tally`.
-- read: steps
WITH this AS MATERIALIZED (SELECT {clock} AS now),
asked AS MATERIALIZED (
    SELECT :step::bigint AS step, now,
        floor(date_part('epoch', coalesce(:at::timestamptz, now - make_interval(secs => :ago::double precision))) / :step::bigint)::bigint
            * :step::bigint AS since
    FROM this
),
told AS (
    SELECT h.type_name, h.at, h.what, h.bucket, h.number, h.seconds
    FROM {history} AS h WHERE h.grain IN (60, 3600, 86400) AND h.at >= (SELECT since FROM asked) AND h.bucket <> {details}
    UNION ALL
    SELECT h.type_name, h.at, h.what, {first_fine} + (each & 1023)::integer, each >> 10, 0
    FROM {history} AS h CROSS JOIN unnest(h.fine) AS each
    WHERE h.grain IN (60, 3600, 86400) AND h.at >= (SELECT since FROM asked) AND h.bucket = {details}
    UNION ALL
    SELECT t.type_name, floor(date_part('epoch', t.at) / 60)::bigint * 60, t.what, counted.bucket, e.number, counted.seconds
    FROM {tally} AS t CROSS JOIN LATERAL {expand}(t.at, t.number, t.since) AS e
    CROSS JOIN LATERAL (VALUES (e.bucket, e.seconds), ({first_fine} + e.fine, 0)) AS counted (bucket, seconds)
    WHERE t.at >= to_timestamp((SELECT since FROM asked)) AND counted.bucket IS NOT NULL
)
SELECT told.type_name, told.at / asked.step * asked.step, told.what, told.bucket, sum(told.number)::bigint, sum(told.seconds), NULL::timestamptz
FROM told CROSS JOIN asked WHERE :type::text IS NULL OR told.type_name = :type::text
GROUP BY told.type_name, told.at / asked.step * asked.step, told.what, told.bucket HAVING sum(told.number) <> 0
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, now FROM this;

-- write: roll_up
SELECT {roll_up}(:limit::integer, :after::text);
