-- Comparing what must agree, and the surroundings. Nothing but `repair_damage` locks or writes. Each statement
-- is one snapshot. The functions tell which indexes they use.

-- read: running
SELECT kind, id, detail, place FROM {exam_running}(:after::text[], :limit::integer, :seconds::double precision);

-- read: ready
SELECT kind, id, detail, place FROM {exam_ready}(:after::text[], :limit::integer, :seconds::double precision);

-- read: later
SELECT kind, id, detail, place FROM {exam_later}(:after::text[], :limit::integer, :seconds::double precision);

-- read: line
SELECT kind, id, detail, place FROM {exam_line}(:after::text[], :limit::integer, :seconds::double precision);

-- read: lanes
SELECT kind, id, detail, place FROM {exam_lanes}(:after::text[], :limit::integer, :seconds::double precision);

-- read: blocked
SELECT kind, id, detail, place FROM {exam_blocked}(:after::text[], :limit::integer, :seconds::double precision);

-- read: keys
SELECT kind, id, detail, place FROM {exam_keys}(:after::text[], :limit::integer, :seconds::double precision);

-- read: edges
SELECT kind, id, detail, place FROM {exam_edges}(:after::text[], :limit::integer, :seconds::double precision);

-- read: jobs
SELECT kind, id, detail, place FROM {exam_jobs}(:after::text[], :limit::integer, :seconds::double precision);

-- Locks the row that is repaired, and waits for nothing.
-- write: repair
SELECT {put_right}(:kind::text, :id::text, :place::text[]);

-- The server's clock, and settings that matter.
-- read: server
SELECT clock_timestamp(), pg_is_in_recovery(), current_setting('default_transaction_read_only')::boolean,
    current_setting('track_counts')::boolean, current_setting('autovacuum')::boolean;

-- The transaction that keeps the oldest snapshot of this database, or a prepared one. Without the
-- rights of pg_monitor, only sessions of the same role are seen.
-- read: oldest_snapshot
SELECT holder, state, age::double precision FROM (
    SELECT format('process %s (%s)', a.pid, coalesce(nullif(a.application_name, ''), a.usename::text, 'unknown')) AS holder,
        coalesce(a.state, 'unknown') AS state, extract(epoch FROM clock_timestamp() - a.xact_start) AS age
    FROM pg_stat_activity AS a
    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.xact_start IS NOT NULL
        AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL) AND a.backend_type IN ('client backend', 'walsender')
    UNION ALL
    SELECT format('the prepared transaction %L', p.gid), 'prepared', extract(epoch FROM clock_timestamp() - p.prepared)
    FROM pg_prepared_xacts AS p WHERE p.database = current_database()
) AS held (holder, state, age)
ORDER BY age DESC LIMIT 1;

-- Our tables, with each partition instead of its table: rows, dead rows, how many of these are
-- normal, seconds since the last vacuum, and whether it is unlogged, or excluded from autovacuum, and
-- its size with its indexes. A table without any vacuum counts from its creation.
-- read: tables
SELECT c.relname::text, s.n_live_tup, s.n_dead_tup,
    (coalesce(option.threshold, current_setting('autovacuum_vacuum_threshold')::double precision)
        + coalesce(option.scale, current_setting('autovacuum_vacuum_scale_factor')::double precision) * greatest(c.reltuples, 0))::double precision,
    extract(epoch FROM clock_timestamp() - coalesce(
        greatest(s.last_vacuum, s.last_autovacuum), (SELECT min(v.applied_at) FROM {version} AS v)
    ))::double precision,
    c.relpersistence = 'u', coalesce(option.enabled, true), pg_total_relation_size(c.oid)
FROM unnest(:names::text[]) AS asked (name)
LEFT JOIN pg_inherits AS i ON i.inhparent = to_regclass(asked.name)
JOIN pg_class AS c ON c.oid = coalesce(i.inhrelid, to_regclass(asked.name)) AND (i.inhrelid IS NOT NULL OR NOT c.relispartition)
JOIN pg_stat_all_tables AS s ON s.relid = c.oid
CROSS JOIN LATERAL (
    SELECT max(o.option_value) FILTER (WHERE o.option_name = 'autovacuum_vacuum_threshold')::double precision AS threshold,
        max(o.option_value) FILTER (WHERE o.option_name = 'autovacuum_vacuum_scale_factor')::double precision AS scale,
        max(o.option_value) FILTER (WHERE o.option_name = 'autovacuum_enabled')::boolean AS enabled
    FROM pg_options_to_table(c.reloptions) AS o
) AS option
ORDER BY 1;

-- Running jobs by queue and worker. Scans `running`, which is small.
-- read: running_groups
SELECT r.type_name, r.worker, count(*), (array_agg(r.job_id ORDER BY r.started_at, r.job_id))[1]::text, min(r.started_at), r.queue
FROM {running} AS r GROUP BY r.type_name, r.worker, r.queue;
