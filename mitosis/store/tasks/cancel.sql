-- Cancelling single tasks (protocol P1-P3, P8). Lock order: group_live, task rows by id.

-- name: lock_for_cancel
-- From here until the commit, reports, submits and endings of the group wait. Claims do not.
SELECT g.id AS number, coalesce(v.grace_seconds, g.cancel_grace_seconds) AS grace_seconds
  FROM group_live AS v JOIN task_groups AS g ON g.id = v.group_id
 WHERE g.uuid = %(group)s
   FOR NO KEY UPDATE OF v

-- name: matching
-- The next unfinished tasks that a list or a filter names; claimed: its host would be asked to stop it.
SELECT m.id, m.claimed
  FROM (SELECT o.id, o.priority, o.state = 1 AS claimed,
               CASE WHEN o.state = 4 AND o.not_before > now() THEN 'delayed'
                    WHEN o.state = 2 THEN 'blocked'
                    WHEN o.state = 1 AND o.started_at IS NOT NULL THEN 'running' ELSE 'ready' END AS state
          FROM open_task AS o
         WHERE o.group_id = %(group_number)s AND o.id > %(after)s
           AND (%(ids)s::bigint[] IS NULL OR o.id = ANY(%(ids)s::bigint[]))) AS m
 WHERE m.state = ANY(%(states)s::text[])
   AND (%(min_priority)s::int IS NULL OR m.priority >= %(min_priority)s)
   AND (%(max_priority)s::int IS NULL OR m.priority <= %(max_priority)s)
   AND EXISTS (SELECT FROM task AS t
                WHERE t.id = m.id
                  AND (%(labels)s::jsonb = '[]' OR (t.spec -> 'labels')::jsonb @> %(labels)s::jsonb)
                  AND (%(submitted_after)s::timestamptz IS NULL OR t.created_at > %(submitted_after)s)
                  AND (%(submitted_before)s::timestamptz IS NULL OR t.created_at < %(submitted_before)s))
 ORDER BY m.id LIMIT %(limit)s

-- name: cancel_tasks
-- The caller holds group_live. Waits for claims in flight, and takes rows in the state after them, if the
-- filter still names that state. A claimed row goes as well: its attempt is open no more, so that its report
-- changes nothing, and no ending requeues it. Its host gets an order to stop it, which stays until the
-- host has answered for the attempt.
WITH picked AS MATERIALIZED (
    SELECT o.id, o.attempt, o.state, o.epoch, o.started_at
      FROM open_task AS o
     WHERE o.group_id = %(group_number)s AND o.id = ANY(%(ids)s::bigint[])
       AND CASE WHEN o.state = 4 AND o.not_before > now() THEN 'delayed'
                WHEN o.state = 2 THEN 'blocked'
                WHEN o.state = 1 AND o.started_at IS NOT NULL THEN 'running'
                ELSE 'ready' END = ANY(%(states)s::text[])
     ORDER BY o.id
       FOR UPDATE OF o
), gone AS (
    DELETE FROM open_task AS o
     WHERE o.group_id = %(group_number)s AND o.id = ANY(ARRAY(SELECT id FROM picked))
), results AS (
    INSERT INTO task_result (task_id, group_id, seq, state, attempt, manager_id, kind, started_at, finished_at,
                             detail)
    SELECT p.id, v.group_id, v.total - v.unfinished + row_number() OVER (ORDER BY p.id), 'cancelled', p.attempt,
           CASE WHEN p.started_at IS NOT NULL THEN l.manager_id END, 'cancelled', p.started_at, now(),
           CASE WHEN %(reason)s::text IS NOT NULL
                THEN json_build_object('message', 'cancelled: ' || %(reason)s::text) END
      FROM picked AS p LEFT JOIN leases AS l ON l.epoch = p.epoch, group_live AS v
     WHERE v.group_id = %(group_number)s
), stops AS (
    INSERT INTO task_stops (epoch, task_id, attempt, grace_seconds, reason)
    SELECT p.epoch, p.id, p.attempt, %(grace)s::float8, coalesce(%(reason)s::text, 'the task was cancelled')
      FROM picked AS p WHERE p.state = 1
        ON CONFLICT (epoch, task_id, attempt) DO NOTHING
), sums AS MATERIALIZED (
    SELECT count(*) AS n FROM picked
), before AS MATERIALIZED (
    SELECT v.group_id, v.unfinished, v.watched, g.uuid
      FROM group_live AS v JOIN task_groups AS g ON g.id = v.group_id WHERE v.group_id = %(group_number)s
), counted AS (
    UPDATE group_live AS v
       SET unfinished = v.unfinished - s.n, cancelled = v.cancelled + s.n, watched = false,
           drain_seq = v.drain_seq + (v.state <> 'open' AND v.unfinished = s.n)::int
      FROM sums AS s WHERE v.group_id = %(group_number)s AND s.n > 0
), pokes AS (
    INSERT INTO outbox (kind, subject)
    SELECT 'task_group', b.uuid FROM before AS b, sums AS s WHERE s.n > 0 AND b.unfinished = s.n
    RETURNING 1
)
SELECT coalesce((SELECT array_agg(id) FROM picked WHERE state <> 1), '{}') AS unclaimed,
       coalesce((SELECT array_agg(id) FROM picked WHERE state = 1), '{}') AS claimed,
       CASE WHEN EXISTS (SELECT FROM pokes) THEN pg_notify('mitosis_outbox', '') END AS relay_notified,
       CASE WHEN b.watched AND s.n > 0
            THEN pg_notify('mitosis_wake', b.group_id || '!') END AS watchers_notified
  FROM before AS b, sums AS s

-- name: ended_before
-- How the other tasks of a list have ended; one that does not exist has no row.
SELECT r.task_id, r.state FROM task_result AS r
 WHERE r.group_id = %(group_number)s AND r.task_id = ANY(%(ids)s::bigint[])
