-- Who executes the tasks of a group of worker services, and which tasks no service can execute now.

-- name: executing
SELECT s.worker_id, count(*) AS tasks
  FROM leases AS l
  JOIN open_task AS o ON o.group_id = l.group_id AND o.epoch = l.epoch AND o.state = 1
  JOIN worker_services AS s ON s.uuid = l.worker_uuid
 WHERE l.group_id = %(group_number)s AND l.kind = 'worker' AND l.state <> 'ended'
 GROUP BY s.worker_id ORDER BY s.worker_id LIMIT 100

-- name: claimable
-- The named tasks of the group that wait to be claimed, those first that no usable service supports.
SELECT u.name AS group_name, n.namespace, n.name, n.version, f.worker_ids
  FROM task_groups AS g
  JOIN user_groups AS u ON u.id = g.user_group_id
  JOIN named_tasks AS n ON n.user_group_id = g.user_group_id
 CROSS JOIN LATERAL (
     SELECT coalesce(array_agg(s.worker_id ORDER BY a.priority DESC, s.worker_id), '{}') AS worker_ids
       FROM worker_named_tasks AS a
       JOIN worker_services AS s ON s.id = a.service_id
       JOIN worker_registrations AS r ON r.service_id = s.id AND r.unregistered_at IS NULL
      CROSS JOIN (SELECT now() AS now) AS clock
      WHERE a.named_task_id = n.id AND a.withdrawn_at IS NULL AND $usable$) AS f
 WHERE g.id = %(group_number)s
   AND (EXISTS (SELECT FROM open_task AS o
                 WHERE o.state = 0 AND o.named_task_id = n.id AND o.group_id = g.id)
        OR EXISTS (SELECT FROM open_task AS o
                    WHERE o.state = 4 AND o.named_task_id = n.id AND o.not_before <= now() AND o.group_id = g.id))
 ORDER BY cardinality(f.worker_ids) > 0, n.id LIMIT 100
