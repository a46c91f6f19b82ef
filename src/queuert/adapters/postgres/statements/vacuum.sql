-- The tables to vacuum, those with the fewest rows first, and how much space each takes up, with its
-- indexes. A partition belongs to its table: VACUUM includes it. Locks nothing that others need.

-- read: tables
SELECT asked.name, sum(pg_total_relation_size(part.oid))::bigint
FROM unnest(:names::text[]) AS asked (name)
JOIN pg_class AS c ON c.oid = asked.name::regclass AND NOT c.relispartition
LEFT JOIN pg_inherits AS i ON i.inhparent = c.oid
CROSS JOIN LATERAL (SELECT coalesce(i.inhrelid, c.oid)) AS part (oid)
GROUP BY asked.name
ORDER BY sum(pg_stat_get_live_tuples(part.oid)), asked.name;
