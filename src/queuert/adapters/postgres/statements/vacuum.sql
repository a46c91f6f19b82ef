-- How much space the tables take up, with their indexes. Locks nothing that others need.

-- read: size
SELECT sum(pg_total_relation_size(each))::bigint FROM unnest(ARRAY[
    {ready_text}, {later_text}, {running_text}, {worker_text}, {worker_about_text}, {unblocking_text}, {pause_text},
    {retention_text}, {pruning_text}, {kept_text}, {attempt_text}, {tally_text}, {history_text}, {blocker_text}, {key_text}, {job_text}
]::regclass[]) AS each;
