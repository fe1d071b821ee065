-- Own deaths of tasks by SIGTERM or SIGINT (C-29).

-- name: termination_limits
-- Of tasks that ended by SIGTERM or SIGINT: how many such deaths in a row end them, if they say so themselves.
SELECT t.id, (t.spec->'retry'->>'max_terminations')::int AS most FROM task AS t
 WHERE t.id = ANY(%(ids)s::bigint[])
