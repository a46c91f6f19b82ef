-- The indexes of the listings. The index on the status has no completed jobs. The indexes on type
-- and status have only blocked, cancelled, expired and failed jobs, so they cost nothing for a job
-- that runs without problems. Their condition selects these statuses by alphabetical order. With IN
-- it would cost two microseconds for every update of a job, because SQLite evaluates it each time.
-- The plus sign keeps the planner from using the comparison for a search.
-- oldest: 1

-- list_jobs by type
CREATE INDEX {prefix}job_type ON {prefix}job (type_name, id);

-- list_chains by type
CREATE INDEX {prefix}job_first ON {prefix}job (type_name, id) WHERE chain_index = 0;

-- list_jobs and list_chains by status; stats
CREATE INDEX {prefix}job_status ON {prefix}job (status, id) WHERE status <> 'completed';

-- list_jobs by type and status
CREATE INDEX {prefix}job_type_status ON {prefix}job (type_name, status, id)
    WHERE +status < 'pending' AND status <> 'completed';

-- list_chains by type and status
CREATE INDEX {prefix}job_chain_type_status ON {prefix}job (chain_type, status, id)
    WHERE +status < 'pending' AND status <> 'completed';
