-- The indexes of the listings. An index on the status leaves completed jobs out, and those on type and status leave out
-- what jobs pass through on their usual way: so an ordinary job never pays for the latter. Their condition means
-- blocked, cancelled, expired and failed, in alphabetical order; spelled with IN it would cost two microseconds for every
-- update of a job, since SQLite evaluates it each time. The plus sign keeps the planner from searching by it.
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
