-- Messages to Temporal (protocol P6).

-- name: poke
-- Written in the transaction that caused them; the notification is sent when it commits.
WITH written AS (
    INSERT INTO outbox (kind, subject)
    SELECT 'task_group', unnest(%(groups)s::uuid[])
    UNION ALL SELECT 'manager', unnest(%(managers)s::uuid[])
    UNION ALL SELECT 'scheduler', NULL WHERE %(scheduler)s::boolean
    UNION ALL SELECT 'schedule', unnest(%(schedules)s::uuid[])
    RETURNING 1
)
SELECT pg_notify('mitosis_outbox', '') FROM (SELECT count(*) AS n FROM written) AS w WHERE w.n > 0

-- name: take
-- Hides the returned rows by moving due_at; if the relay dies, a later take returns them again. A row of a
-- kind that this version does not know is left to a process that does.
WITH taken AS (
    UPDATE outbox AS o
       SET attempts = o.attempts + 1,
           due_at = now() + make_interval(secs => least(60, power(2, o.attempts + 1)))
      FROM (SELECT id FROM outbox WHERE due_at <= now() AND kind = ANY(%(kinds)s::text[])
             ORDER BY due_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED) AS due
     WHERE o.id = due.id
    RETURNING o.id, o.kind, o.subject
)
SELECT t.id, t.kind, t.subject,
       json_build_object('task_group', g.name, 'user_group', u.name, 'manager', m.name, 'job', r.job_name) AS names
  FROM taken AS t
  LEFT JOIN task_groups AS g ON t.kind = 'task_group' AND g.uuid = t.subject
  LEFT JOIN runs AS r ON t.kind = 'run' AND r.uuid = t.subject
  LEFT JOIN user_groups AS u ON u.id = coalesce(g.user_group_id, r.user_group_id)
  LEFT JOIN managers AS m ON t.kind = 'manager' AND m.uuid = t.subject
 ORDER BY t.id

-- name: delete
DELETE FROM outbox WHERE id = ANY(%(ids)s::bigint[])

-- name: expected
-- Reconcile: the subjects that must have a running workflow. A manager needs one while it has a lease or an
-- environment, an owed one only while a group waits for it; overdue = it has been silent for long enough to be
-- lost, while an API was there to notice. Without a lease no clock of a workflow runs while it is in contact.
WITH held AS (
    SELECT m.id, m.uuid,
           coalesce((SELECT l.alive_until <= now() FROM leases AS l
                      WHERE l.manager_id = m.id AND l.kind = 'manager'
                        AND l.state IN ('active', 'ending')),
                    NOT c.offline AND c.last_contact_at <= now() - make_interval(secs => %(host_lost_after)s)
                    AND NOT EXISTS (SELECT FROM leases AS l WHERE l.manager_id = m.id AND l.kind = 'manager'
                                       AND l.state = 'offered')) AS overdue
      FROM managers AS m JOIN manager_live AS c ON c.manager_id = m.id
     WHERE m.deleted_at IS NULL  -- a deleted one has neither
       AND (EXISTS (SELECT FROM leases AS l
                     WHERE l.manager_id = m.id AND l.kind = 'manager' AND l.state <> 'ended')
            OR EXISTS (SELECT FROM environments AS e LEFT JOIN group_live AS v ON v.group_id = e.group_id
                        WHERE e.manager_id = m.id AND e.state <> 'gone'
                          AND (e.state <> 'owed'
                               OR (NOT c.offline AND v.settled_at IS NULL
                                   AND v.state IN ('complete', 'cancelled')))))
)
SELECT coalesce((SELECT array_agg(g.uuid ORDER BY g.id) FROM group_live AS v
                   JOIN task_groups AS g ON g.id = v.group_id
                  WHERE v.settled_at IS NULL AND g.kind <> 'direct'), '{}') AS task_groups,
       coalesce((SELECT array_agg(g.uuid ORDER BY g.id) FROM group_live AS v
                   JOIN task_groups AS g ON g.id = v.group_id
                  WHERE v.settled_at IS NULL AND g.kind <> 'direct'
                    AND (v.state <> 'open' OR g.auto_close_timeout_seconds IS NOT NULL
                         OR g.close_deadline IS NOT NULL
                         OR EXISTS (SELECT FROM leases AS l
                                     WHERE l.group_id = v.group_id AND l.state <> 'ended'))), '{}') AS urgent_groups,
       coalesce((SELECT array_agg(uuid ORDER BY id) FROM held), '{}') AS managers,
       coalesce((SELECT array_agg(r.uuid ORDER BY r.id) FROM runs AS r WHERE r.ended_at IS NULL), '{}') AS runs,
       coalesce((SELECT array_agg(uuid ORDER BY id) FROM held
                  WHERE overdue AND NOT EXISTS (
                        SELECT FROM api_pulse AS p
                         WHERE p.beat_at < clock_timestamp() - make_interval(secs => %(api_stale_after)s))),
                '{}') AS overdue_managers,
       (SELECT coalesce(json_object_agg(g.uuid, json_build_object('task_group', g.name, 'user_group', u.name)), '{}')
          FROM group_live AS v JOIN task_groups AS g ON g.id = v.group_id JOIN user_groups AS u ON u.id = g.user_group_id
         WHERE v.settled_at IS NULL AND g.kind <> 'direct')::jsonb
       || (SELECT coalesce(json_object_agg(h.uuid, json_build_object('manager', m.name)), '{}')
             FROM held AS h JOIN managers AS m ON m.id = h.id)::jsonb
       || (SELECT coalesce(json_object_agg(r.uuid, json_build_object('job', r.job_name, 'user_group', u.name)), '{}')
             FROM runs AS r JOIN user_groups AS u ON u.id = r.user_group_id WHERE r.ended_at IS NULL)::jsonb AS names
