-- Jobs and chains by id. Nothing is locked here: with `lock=True` the caller is in a transaction
-- that has the write lock. Primary key; index job_chain for a chain's current job.

-- read: jobs
SELECT {job_columns}
FROM json_each(:ids) AS asked
CROSS JOIN {prefix}job AS job ON job.id = asked.value;

-- read: chains
SELECT {first_columns}, {current_columns}
FROM json_each(:ids) AS asked
CROSS JOIN {prefix}job AS first ON first.id = asked.value AND first.chain_index = 0
CROSS JOIN {prefix}job AS current ON current.rowid = {current_of_first};

-- The edges of each job in order: by the blockers' primary key.
-- read: blockers
SELECT edge.job_id, edge.chain_id, first.type_name, current.status, CAST(current.output AS BLOB), edge.trace_context
FROM json_each(:ids) AS asked
CROSS JOIN {prefix}blocker AS edge ON edge.job_id = asked.value
CROSS JOIN {prefix}job AS first ON first.id = edge.chain_id
CROSS JOIN {prefix}job AS current ON current.rowid = {current_of_first}
ORDER BY asked.key, edge.position;

-- The chains that deduplication keys refer to. For each chain type that has keys, one lookup in the
-- primary key of `dedup`.
-- read: keys
WITH RECURSIVE kind (name) AS (
    SELECT min(chain_type) FROM {prefix}dedup
    UNION ALL
    SELECT (SELECT min(held.chain_type) FROM {prefix}dedup AS held WHERE held.chain_type > kind.name)
    FROM kind WHERE kind.name IS NOT NULL
)
SELECT held.chain_id FROM kind
CROSS JOIN json_each(:keys) AS asked
CROSS JOIN {prefix}dedup AS held ON held.chain_type = kind.name AND held.key = asked.value;
