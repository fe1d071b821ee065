-- What PostgreSQL knows about the reasons for which workflows end leases.

-- name: facts
-- The caller holds the lease FOR UPDATE. Claims take it too, so no task is claimed under it until the end.
SELECT extract(epoch FROM now() - l.offered_at)::float8 AS offered_seconds,
       coalesce(extract(epoch FROM now() - c.last_contact_at), 'infinity')::float8 AS silent_seconds,
       v.state AS group_state,
       EXISTS (SELECT FROM open_task AS o
                WHERE o.group_id = l.group_id AND o.state = 1 AND o.epoch = l.epoch) AS holds_tasks,
       EXISTS (SELECT FROM environments AS e
                WHERE e.manager_id = l.manager_id AND e.group_id = l.group_id
                  AND e.state IN ('tearing_down', 'owed', 'gone') AND e.changed_at >= l.taken_at)
           AS environment_is_gone
  FROM leases AS l
  JOIN group_live AS v ON v.group_id = l.group_id
  JOIN manager_live AS c ON c.manager_id = l.manager_id
 WHERE l.epoch = %(epoch)s
