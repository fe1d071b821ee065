-- Environments and hook runs (protocol P9).

-- name: environment_facts
-- Of a group, or of one that no longer exists and to which the host owes a teardown.
SELECT g.id AS group_number, m.id AS manager_number, m.machine_id, m.boot_id, true AS exists,
       v.state IN ('complete', 'cancelled') AS terminal
  FROM task_groups AS g JOIN group_live AS v ON v.group_id = g.id, managers AS m
 WHERE g.uuid = %(group)s AND m.uuid = %(manager)s
UNION ALL
SELECT e.group_id, m.id, m.machine_id, m.boot_id, false, true
  FROM environments AS e JOIN managers AS m ON m.id = e.manager_id
 WHERE e.task_group_uuid = %(group)s AND m.uuid = %(manager)s
   AND NOT EXISTS (SELECT FROM task_groups AS g WHERE g.id = e.group_id)

-- name: lock_leases_for_environment
SELECT l.epoch, l.state FROM leases AS l
 WHERE l.manager_id = %(manager_number)s AND l.group_id = %(group_number)s AND l.state <> 'ended'
   FOR UPDATE OF l

-- name: lock_environment
SELECT e.state, extract(epoch FROM clock_timestamp() - e.changed_at)::float8 AS seconds
  FROM environments AS e
 WHERE e.manager_id = %(manager_number)s AND e.group_id = %(group_number)s
   FOR UPDATE OF e

-- name: debt
-- A teardown that the host has to finish, of any group, before it prepares anything (P9).
SELECT e.group_id FROM environments AS e
 WHERE e.manager_id = %(manager_number)s AND e.state <> 'gone' AND e.state IN ('owed', 'tearing_down')
 LIMIT 1

-- name: create_environment
-- With all that its teardown needs: the group may be gone by then (P8).
INSERT INTO environments (manager_id, group_id, state, fingerprint, epoch, machine_id, boot_id, task_group_uuid,
                          task_group_name, group_name, worker_count, teardown_hook)
SELECT %(manager_number)s, g.id, %(state)s, coalesce(%(fingerprint)s::text, ''), %(epoch)s::bigint,
       %(machine_id)s, %(boot_id)s, g.uuid, g.name, u.name, (g.worker_allocation_plan ->> 'worker_count')::int,
       g.environment_teardown_hook
  FROM task_groups AS g JOIN user_groups AS u ON u.id = g.user_group_id
 WHERE g.id = %(group_number)s
    ON CONFLICT (manager_id, group_id) DO NOTHING

-- name: change_environment
-- A teardown is due since it was first owed or begun (cleanup.sql); one that could not begin is still due.
UPDATE environments AS e
   SET state = %(state)s,
       changed_at = CASE WHEN (e.state = 'owed' AND %(state)s = 'tearing_down')
                           OR (e.state = 'tearing_down' AND %(state)s = 'owed') THEN e.changed_at ELSE now() END,
       fingerprint = coalesce(%(fingerprint)s::text, e.fingerprint),
       epoch = coalesce(%(epoch)s::bigint, e.epoch), machine_id = %(machine_id)s, boot_id = %(boot_id)s,
       degraded = CASE WHEN %(state)s = 'preparing' THEN e.degraded ELSE e.degraded OR %(degraded)s END
 WHERE e.manager_id = %(manager_number)s AND e.group_id = %(group_number)s

-- name: forget_waiting_hook
-- A run that could not begin is shown until the next try.
DELETE FROM hook_runs
 WHERE manager_id = %(manager_number)s AND group_id = %(group_number)s AND kind = %(kind)s AND state = 'waiting'

-- name: end_interrupted_hooks
-- Runs that have begun and cannot go on, since the environment has changed or another run is reported.
UPDATE hook_runs
   SET finished_at = now(), message = 'stopped before its end, or its agent died'
 WHERE manager_id = %(manager_number)s AND group_id = %(group_number)s AND state = 'running' AND finished_at IS NULL
   AND started_at IS DISTINCT FROM %(started_at)s::timestamptz

-- name: update_hook_run
UPDATE hook_runs
   SET state = %(hook_state)s, exit_code = %(exit_code)s, signal = %(signal)s, message = %(message)s,
       stdout_tail = %(stdout_tail)s, stderr_tail = %(stderr_tail)s, retry_count = %(retry_count)s,
       finished_at = %(finished_at)s
 WHERE manager_id = %(manager_number)s AND group_id = %(group_number)s AND kind = %(kind)s
   AND started_at = %(started_at)s

-- name: insert_hook_run
INSERT INTO hook_runs (manager_id, group_id, epoch, kind, state, exit_code, signal, message, stdout_tail,
                       stderr_tail, retry_count, started_at, finished_at)
VALUES (%(manager_number)s, %(group_number)s, %(epoch)s, %(kind)s, %(hook_state)s, %(exit_code)s, %(signal)s,
        %(message)s, %(stdout_tail)s, %(stderr_tail)s, %(retry_count)s, %(started_at)s, %(finished_at)s)

-- name: environment
-- A row of the version before this one has no copy of the group's facts until the group is deleted.
SELECT %(group)s::uuid AS task_group_id, coalesce(e.task_group_name, g.name) AS task_group_name,
       coalesce(e.group_name, u.name) AS group_name, e.state,
       coalesce(e.worker_count, (g.worker_allocation_plan ->> 'worker_count')::int) AS worker_count,
       coalesce(e.teardown_hook, g.environment_teardown_hook) AS environment_teardown_hook
  FROM environments AS e
  JOIN managers AS m ON m.id = e.manager_id
  LEFT JOIN task_groups AS g ON g.id = e.group_id
  LEFT JOIN user_groups AS u ON u.id = g.user_group_id
 WHERE m.uuid = %(manager)s AND coalesce(e.task_group_uuid, g.uuid) = %(group)s AND e.state <> 'gone'
