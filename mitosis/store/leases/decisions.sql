-- Decisions with their inputs, so that they can be explained later.

-- name: record_decision
-- The oldest ones are deleted.
WITH kept AS (
    INSERT INTO scheduling_decisions (inputs) VALUES (%(inputs)s) RETURNING id
)
DELETE FROM scheduling_decisions WHERE id <= (SELECT id FROM kept) - %(kept)s

-- name: decision_at
-- The last one before a time; else the oldest that is kept.
SELECT d.decided_at, d.inputs FROM scheduling_decisions AS d
 ORDER BY d.decided_at <= %(at)s DESC, CASE WHEN d.decided_at <= %(at)s THEN %(at)s - d.decided_at ELSE d.decided_at - %(at)s END
 LIMIT 1

-- name: ids_of_hosts
SELECT m.id AS number, m.uuid FROM managers AS m WHERE m.id = ANY(%(managers)s::bigint[])
