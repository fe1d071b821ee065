-- Environments and hook runs (protocol P9).

-- name: environment_facts
SELECT g.id AS group_number, g.uuid, m.id AS manager_number, m.machine_id, m.boot_id,
       v.state IN ('complete', 'cancelled') AS terminal
  FROM task_groups AS g JOIN group_live AS v ON v.group_id = g.id, managers AS m
 WHERE g.uuid = %(group)s AND m.uuid = %(manager)s

-- name: lock_leases_for_environment
SELECT l.epoch, l.state FROM leases AS l
 WHERE l.manager_id = %(manager_number)s AND l.group_id = %(group_number)s AND l.state <> 'ended'
   FOR UPDATE OF l

-- name: lock_environment
SELECT e.state
  FROM environments AS e
 WHERE e.manager_id = %(manager_number)s AND e.group_id = %(group_number)s
   FOR UPDATE OF e

-- name: save_environment
INSERT INTO environments (manager_id, group_id, state, fingerprint, epoch, machine_id, boot_id, degraded)
VALUES (%(manager_number)s, %(group_number)s, %(state)s, coalesce(%(fingerprint)s::text, ''), %(epoch)s::bigint,
        %(machine_id)s, %(boot_id)s, %(degraded)s)
    ON CONFLICT (manager_id, group_id) DO UPDATE
   SET state = excluded.state, changed_at = now(),
       fingerprint = coalesce(%(fingerprint)s::text, environments.fingerprint),
       epoch = coalesce(excluded.epoch, environments.epoch),
       machine_id = excluded.machine_id, boot_id = excluded.boot_id,
       degraded = CASE WHEN excluded.state = 'preparing' THEN environments.degraded
                       ELSE environments.degraded OR excluded.degraded END

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
SELECT g.uuid AS task_group_id, g.name AS task_group_name, u.name AS group_name, e.state,
       (g.worker_allocation_plan ->> 'worker_count')::int AS worker_count, g.environment_teardown_hook
  FROM environments AS e
  JOIN managers AS m ON m.id = e.manager_id
  JOIN task_groups AS g ON g.id = e.group_id
  JOIN user_groups AS u ON u.id = g.user_group_id
 WHERE m.uuid = %(manager)s AND g.uuid = %(group)s AND e.state <> 'gone'
