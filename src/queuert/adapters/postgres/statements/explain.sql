-- Why a job is not running. One statement, so one snapshot.

-- read: circumstances
SELECT * FROM {look_around}(
    :chain::text, :seen_every::double precision, :overdue::double precision, :edges::integer, :shown::integer, :ahead::integer
);
