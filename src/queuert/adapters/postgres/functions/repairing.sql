-- Retrying a job with another input. Locks the job (primary key).

-- Make a job that failed, was cancelled or has expired pending again; returns its id, if it had one
-- of these statuses. Without a new deadline, it loses one that has passed. If it has another lane
-- then, and has held the old one, claims have to look at that. Locks the job (primary key).
CREATE OR REPLACE FUNCTION {repair}(
    p_id text, p_input text, p_deadline_at timestamptz, p_deadline_after double precision, p_lane text, p_weight double precision,
    p_statistics boolean
) RETURNS SETOF text LANGUAGE plpgsql {steady} AS $body$
DECLARE
    v_now timestamptz;
    v_type text;
    v_lane text;
BEGIN
    SELECT lane INTO v_lane FROM {job} WHERE id = p_id::uuid FOR UPDATE;
    v_now := {clock};
    UPDATE {job} AS j SET status = 'pending', resting = NULL, attempt = 0, losses = 0, scheduled_at = v_now, completed_at = NULL,
        completed_by = NULL, input = p_input::json, lane = p_lane, weight = p_weight,
        deadline = coalesce(
            p_deadline_at, v_now + make_interval(secs => p_deadline_after), CASE WHEN j.deadline > v_now THEN j.deadline END
        )
    WHERE j.id = p_id::uuid AND j.status IN ('failed', 'cancelled', 'expired') RETURNING j.type_name INTO v_type;
    IF FOUND THEN
        IF v_lane <> p_lane OR (v_lane IS NOT NULL AND p_lane IS NULL) THEN
            INSERT INTO {news} (lane, kind) VALUES (v_lane, 0);
        END IF;
        PERFORM {enqueue}(ARRAY[p_id::uuid], v_now);
        IF p_statistics THEN
            INSERT INTO {tally} (at, type_name, what, number, since) VALUES (v_now, v_type, 'retried', 1, '{}');
        END IF;
        RETURN NEXT p_id;
    END IF;
END $body$;
