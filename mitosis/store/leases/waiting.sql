-- What waiting.py adds to the facts of decisions, for one task group. The last two statements read the rows of
-- fleet.sql as "facts".

-- name: hosts_of_group
-- Hosts with a role in the user group, named hosts, hosts with a lease (first) or an environment of the group.
SELECT m.id AS number
  FROM managers AS m
  LEFT JOIN leases AS l ON l.manager_id = m.id AND l.kind = 'manager' AND l.state <> 'ended'
 WHERE m.id IN (SELECT r.manager_id FROM user_group_managers AS r
                  JOIN task_groups AS g ON g.user_group_id = r.user_group_id
                 WHERE g.id = %(group_number)s AND r.role IN ('write', 'admin')
                 UNION SELECT t.manager_id FROM task_group_managers AS t
                 WHERE t.task_group_id = %(group_number)s AND t.assignment_method = 'user_specified'
                 UNION SELECT h.manager_id FROM leases AS h
                 WHERE h.group_id = %(group_number)s AND h.kind = 'manager' AND h.state <> 'ended'
                 UNION SELECT e.manager_id FROM environments AS e
                 WHERE e.group_id = %(group_number)s AND e.state <> 'gone')
 ORDER BY (l.group_id = %(group_number)s) IS TRUE DESC, m.id
 LIMIT 200

-- name: group_details
SELECT f.*, extract(epoch FROM now())::float8 AS now, g.kind, v.state, v.settled_at IS NOT NULL AS settled, v.result, v.reason,
       v.total, v.discarding,
       (SELECT extract(epoch FROM now() - min(x.created_at))::float8 FROM outbox AS x) AS unsent_seconds,
       (SELECT extract(epoch FROM min(o.not_before) - now())::float8 FROM open_task AS o
         WHERE o.group_id = f.number AND o.state = 4) AS delayed_seconds,
       g.on_setup_failure = 'end' OR v.state = 'closed' AND g.on_setup_failure <> 'wait' AS ends_if_setup_fails,
       extract(epoch FROM least(g.close_deadline, CASE WHEN v.state = 'open' THEN
           greatest(v.opened_at, v.last_task_submitted_at)
           + make_interval(secs => g.auto_close_timeout_seconds) END) - now())::float8 AS closes_in_seconds
  FROM facts AS f JOIN task_groups AS g ON g.id = f.number JOIN group_live AS v ON v.group_id = f.number

-- name: host_details
SELECT f.*, extract(epoch FROM l.alive_until - now())::float8 AS alive_in_seconds,
       extract(epoch FROM l.ask_back_at - now())::float8 AS asked_back_in_seconds,
       coalesce(b.host_lost_after_seconds, %(host_lost_after)s)::float8 AS lost_after_seconds,
       (SELECT min(h.message) FROM environments AS e
          JOIN hook_runs AS h ON h.manager_id = e.manager_id AND h.group_id = e.group_id
         WHERE e.manager_id = f.number AND e.state IN ('owed', 'tearing_down')
           AND h.kind = 'teardown' AND h.state = 'waiting') AS debt,
       (SELECT e.state FROM environments AS e
         WHERE e.manager_id = f.number AND e.group_id = %(group_number)s) AS environment,
       (SELECT json_build_object('state', h.state, 'message', h.message, 'exit_code', h.exit_code,
                                 'signal', h.signal)
          FROM hook_runs AS h
         WHERE h.group_id = %(group_number)s AND h.manager_id = f.number AND h.kind = 'setup'
         ORDER BY h.started_at DESC, h.id DESC LIMIT 1) AS setup
  FROM facts AS f
  LEFT JOIN leases AS l ON l.manager_id = f.number AND l.kind = 'manager' AND l.state <> 'ended'
  LEFT JOIN task_groups AS b ON b.id = l.group_id
