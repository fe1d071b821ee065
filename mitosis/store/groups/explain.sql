-- Facts for explain.py.

-- name: waiting_task
-- One task: its attempt, its host, and the number of tasks that are claimed before it, counted up to a bound.
SELECT coalesce(r.attempt, o.attempt) AS attempt, r.state AS result, r.kind, coalesce(m.name, s.worker_id) AS manager_name,
       coalesce(o.state = 1, false) AS claimed,
       CASE WHEN o.state = 2 THEN o.waits_for END AS waits_for,
       coalesce(o.state = 5, false) AS doubted, coalesce(o.lost_count, 0) AS lost_count,
       extract(epoch FROM now() - o.started_at)::float8 AS running_seconds,
       extract(epoch FROM o.not_before - now())::float8 AS delayed_seconds,
       coalesce(c.offline OR c.last_contact_at <= now() - make_interval(secs => %(suspect_after)s), false)
           AS suspect,
       extract(epoch FROM now() - c.last_contact_at)::float8 AS silent_seconds,
       extract(epoch FROM l.alive_until - now())::float8 AS alive_in_seconds,
       (SELECT count(*) FROM (
          SELECT FROM open_task AS b
           WHERE b.group_id = o.group_id AND b.state = 0
             AND (b.priority > o.priority OR (b.priority = o.priority AND b.id < o.id))
           LIMIT 10000) AS earlier) AS before
  FROM task AS t
  LEFT JOIN open_task AS o ON o.group_id = t.group_id AND o.id = t.id
  LEFT JOIN task_result AS r ON r.task_id = t.id
  LEFT JOIN leases AS l ON l.epoch = o.epoch
  LEFT JOIN managers AS m ON m.id = coalesce(r.manager_id, l.manager_id, CASE WHEN o.state = 5 THEN o.avoid END)
  LEFT JOIN manager_live AS c ON c.manager_id = l.manager_id
  LEFT JOIN service_claims AS x ON x.task_id = t.id AND x.attempt = coalesce(r.attempt, o.attempt)
        AND (o.id IS NULL OR o.state = 1)
  LEFT JOIN worker_services AS s ON s.id = x.service_id
 WHERE t.group_id = %(group_number)s AND t.id = %(task)s

-- name: awaited_parents
-- The first few unfinished tasks that a blocked task waits for.
SELECT e.parent AS number,
       CASE WHEN o.state = 4 AND o.not_before > now() THEN 'delayed' WHEN o.state = 2 THEN 'blocked'
            WHEN o.state = 1 AND o.started_at IS NOT NULL THEN 'running' ELSE 'ready' END AS state
  FROM task_edges AS e JOIN task AS t ON t.id = e.parent JOIN open_task AS o ON o.group_id = t.group_id AND o.id = t.id
 WHERE e.child_group_id = %(group_number)s AND e.child = %(task)s
 ORDER BY e.parent LIMIT 3
