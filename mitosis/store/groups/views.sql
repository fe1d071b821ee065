-- Views of task groups, for users and for their workflows.

-- name: show
-- The columns that every view of a group shares, newest group first. views.py selects the ids of a page.
SELECT g.id AS number, g.uuid AS task_group_id, g.name, u.name AS group_name, g.kind, g.preference_seconds, v.state,
       v.settled_at IS NOT NULL AS settled, v.result, v.reason, g.tags, g.labels, g.priority,
       g.worker_allocation_plan, g.environment_setup_hook, g.environment_teardown_hook,
       g.environment_probe,
       g.auto_close_timeout_seconds AS auto_close_timeout, g.close_deadline, g.max_managers, g.tag_match,
       g.assignment_method, g.reopen_on_submit, g.cancel_grace_seconds,
       g.host_lost_after_seconds AS host_lost_after, g.fence, g.on_setup_failure,
       json_build_object('lease_duration', s.lease_duration_seconds, 'longest_lease', s.longest_lease_seconds,
                         'idle_threshold', s.idle_threshold_seconds, 'longest_idle', s.longest_idle_seconds,
                         'preemption_grace', s.preemption_grace_seconds)
           AS lease_settings,
       v.total AS tasks_total, v.unfinished AS tasks_unfinished,
       v.succeeded + v.failed AS tasks_completed, v.succeeded AS tasks_succeeded,
       v.failed AS tasks_failed, v.cancelled AS tasks_cancelled, g.created_at, g.updated_at,
       v.last_task_submitted_at, v.closed_at, v.terminal_at AS completed_at, v.settled_at,
       v.discarding AND v.unfinished > 0 AS counting, v.delete_when_settled AS deleting,
       v.setup_failed
  FROM (SELECT t.* FROM task_groups AS t WHERE t.uuid = ANY(%(ids)s::uuid[]) OFFSET 0) AS g
  JOIN LATERAL (SELECT l.state, l.settled_at, l.result, l.reason, l.total, l.unfinished, l.succeeded, l.failed, l.cancelled,
                       l.last_task_submitted_at, l.closed_at, l.terminal_at, l.discarding, l.delete_when_settled, l.setup_failed
                  FROM group_live AS l WHERE l.group_id = g.id OFFSET 0) AS v ON true
  JOIN LATERAL (SELECT o.name FROM user_groups AS o WHERE o.id = g.user_group_id OFFSET 0) AS u ON true
  LEFT JOIN LATERAL (SELECT c.* FROM manager_config AS c WHERE c.task_group_id = g.id OFFSET 0) AS s ON true
 WHERE g.kind <> 'direct'
 ORDER BY g.id DESC

-- name: details
-- Facts that only the view of one group shows: its hosts, its rate, its hook runs. Bounded. No rate is shown after
-- 1,000 tasks were cancelled in a row.
SELECT (SELECT count(*) FROM (SELECT o.started_at FROM open_task AS o
                               WHERE o.group_id = %(group_number)s AND o.state = 1 LIMIT 10000) AS r
         WHERE r.started_at IS NOT NULL) AS tasks_running,
       (SELECT CASE WHEN count(*) > 1 THEN count(*) / greatest(0.001, extract(epoch FROM
                    CASE WHEN %(unfinished)s > 0 THEN now() ELSE max(r.recorded_at) END
                    - min(coalesce(r.started_at, r.recorded_at))))::float8 END
          FROM (SELECT l.started_at, l.recorded_at
                  FROM (SELECT started_at, recorded_at, state FROM task_result
                         WHERE group_id = %(group_number)s ORDER BY seq DESC LIMIT 1000) AS l
                 WHERE l.state <> 'cancelled' LIMIT 500) AS r) AS tasks_per_second,
       coalesce((SELECT json_agg(json_build_object('epoch', l.epoch, 'state', l.state,
                   'task_group_id', g.uuid, 'task_group_name', g.name, 'manager_id', m.uuid,
                   'manager_name', m.name, 'offered_at', l.offered_at, 'taken_at', l.taken_at,
                   'alive_until', l.alive_until) ORDER BY l.epoch)
          FROM leases AS l JOIN managers AS m ON m.id = l.manager_id JOIN task_groups AS g ON g.id = l.group_id
         WHERE l.group_id = %(group_number)s AND l.state <> 'ended'), '[]') AS leases,
       coalesce((SELECT json_agg(r ORDER BY r.started_at) FROM (
         SELECT h.kind, CASE WHEN h.state = 'running'
                              AND (h.finished_at IS NOT NULL
                                   OR (h.kind = 'setup'
                                       AND NOT EXISTS (SELECT FROM leases AS l
                                                        WHERE l.epoch = h.epoch AND l.state <> 'ended'))
                                   OR (h.kind = 'teardown'
                                       AND NOT EXISTS (SELECT FROM environments AS e
                                                        WHERE e.group_id = h.group_id AND e.manager_id = h.manager_id
                                                          AND e.state = 'tearing_down')))
                             THEN 'interrupted' ELSE h.state END AS state, (SELECT m.name FROM managers AS m WHERE m.id = h.manager_id) AS manager_name, h.exit_code, h.signal, h.message, h.stdout_tail,
                h.stderr_tail, h.started_at, h.finished_at
           FROM hook_runs AS h
          WHERE h.group_id = %(group_number)s ORDER BY h.started_at DESC LIMIT 100) AS r), '[]') AS hook_runs,
       $switching$ AS switching

-- name: observe
-- All inputs of TaskGroupWorkflow's decisions, in one consistent read..
SELECT g.id AS number, g.uuid AS task_group_id, g.name, u.name AS group_name, g.priority, g.tags, v.state,
       v.settled_at IS NOT NULL AS settled, v.result, v.total, v.unfinished,
       extract(epoch FROM v.settled_at - g.created_at)::float8 AS settled_after_seconds, v.succeeded, v.failed,
       v.cancelled, v.drain_seq, v.discarding,
       CASE WHEN v.state = 'open' AND g.auto_close_timeout_seconds IS NOT NULL
            THEN extract(epoch FROM greatest(v.opened_at, v.last_task_submitted_at) - now())::float8
                 + g.auto_close_timeout_seconds END AS auto_close_in_seconds,
       CASE WHEN v.state IN ('open', 'closed') AND NOT v.discarding
            THEN extract(epoch FROM g.close_deadline - now())::float8 END AS close_deadline_in_seconds,
       v.discarding AND EXISTS (SELECT FROM open_task AS o WHERE o.group_id = g.id AND o.state <> 1)
           AS discardable,
       (SELECT count(*) FROM leases AS l
         WHERE l.group_id = g.id AND l.kind = 'manager' AND l.state <> 'ended') AS live_leases,
       w.busy_environments, w.given_up_in_seconds AS cleanup_given_up_in_seconds
  FROM (SELECT t.* FROM task_groups AS t WHERE t.uuid = %(group)s OFFSET 0) AS g
  JOIN group_live AS v ON v.group_id = (SELECT t.id FROM task_groups AS t WHERE t.uuid = %(group)s)
  JOIN user_groups AS u ON u.id = g.user_group_id
 {awaited}

-- name: cancel_stats
-- Counts of a cancelled group, from its counters and from what its hosts hold. A claimed task that is not known to
-- run counts as ready, as in other views. A running task that may finish (kill_running is false) is not counted. A
-- group that the version before has cancelled counts all its cancelled tasks as ready.
SELECT v.unfinished - o.managed - o.independent
       + v.cancelled - coalesce(v.cancelled_before, 0) - v.cancelled_running AS ready_cancelled,
       CASE WHEN v.kill_running THEN o.managed ELSE 0 END + v.cancelled_running AS running_cancelled,
       o.independent AS running_not_cancellable
  FROM group_live AS v
 CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE l.kind = 'manager') AS managed,
                            count(*) FILTER (WHERE l.kind = 'worker') AS independent
                       FROM (SELECT c.epoch, c.started_at FROM open_task AS c
                              WHERE c.group_id = v.group_id AND c.state = 1 OFFSET 0) AS c
                       JOIN leases AS l ON l.epoch = c.epoch
                      WHERE c.started_at IS NOT NULL) AS o
 WHERE v.group_id = (SELECT g.id FROM task_groups AS g WHERE g.uuid = %(group)s)
