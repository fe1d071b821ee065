-- Where the newest tasks of a group ended, for failing_host.py.

-- name: ended_there
-- Of the newest tasks that failed or succeeded, how many did so on each host. What does not speak against a host
-- (a refused result, a lost host) is counted as failed without one. Cancelled tasks take no place.
SELECT m.uuid AS manager_id, m.name AS manager_name, x.failed, x.succeeded
  FROM (SELECT CASE WHEN r.state = 'succeeded' OR NOT (r.kind LIKE 'result_%%'
                         OR r.kind IN ('terminated', 'host_lost', 'workers_lost')) THEN r.manager_id END AS manager_id,
               count(*) FILTER (WHERE r.state = 'failed') AS failed,
               count(*) FILTER (WHERE r.state = 'succeeded') AS succeeded
          FROM ((SELECT e.manager_id, e.state, coalesce(e.kind, '') AS kind FROM task_result AS e
                  WHERE e.group_id = %(group_number)s AND e.state = 'failed' ORDER BY e.task_id DESC LIMIT %(most)s)
                UNION ALL
                (SELECT e.manager_id, e.state, '' FROM task_result AS e
                  WHERE e.group_id = %(group_number)s AND e.state = 'succeeded' ORDER BY e.task_id DESC LIMIT %(most)s)
               ) AS r
         GROUP BY 1) AS x
  LEFT JOIN managers AS m ON m.id = x.manager_id

-- name: counts
SELECT v.failed, v.succeeded FROM group_live AS v WHERE v.group_id = %(group_number)s

-- name: streak
-- Tasks in a row that failed on a host while no other host could run them.
SELECT m.name AS manager_name, f.failures
  FROM host_failures AS f JOIN managers AS m ON m.id = f.manager_id
 WHERE f.group_id = %(group_number)s AND f.manager_id = %(manager_number)s AND f.kind = 'tasks_failed'
   AND f.phase = 'watched' AND f.failures >= %(quarantine_after)s
