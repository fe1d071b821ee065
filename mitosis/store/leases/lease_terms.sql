-- What users set for the leases of task groups (C-31, C-35): one row for a task group with settings of its own.

-- name: read_lease_settings
SELECT g.id AS number, (g.worker_allocation_plan ->> 'worker_count')::int AS workers,
       c.lease_duration_seconds AS lease_duration, c.longest_lease_seconds AS longest_lease,
       c.idle_threshold_seconds AS idle_threshold, c.longest_idle_seconds AS longest_idle,
       c.preemption_grace_seconds AS preemption_grace
  FROM task_groups AS g LEFT JOIN manager_config AS c ON c.task_group_id = g.id
 WHERE g.id = ANY(%(groups)s::bigint[])

-- name: save_lease_settings
INSERT INTO manager_config AS c (task_group_id, lease_duration_seconds, longest_lease_seconds, idle_threshold_seconds,
                                 longest_idle_seconds, preemption_grace_seconds)
VALUES (%(group_number)s, %(lease_duration)s, %(longest_lease)s, %(idle_threshold)s, %(longest_idle)s,
        %(preemption_grace)s)
    ON CONFLICT (task_group_id) DO UPDATE
   SET lease_duration_seconds = excluded.lease_duration_seconds,
       longest_lease_seconds = excluded.longest_lease_seconds,
       idle_threshold_seconds = excluded.idle_threshold_seconds,
       longest_idle_seconds = excluded.longest_idle_seconds,
       preemption_grace_seconds = excluded.preemption_grace_seconds, updated_at = now()
