-- Task groups: creation, changes.

-- name: create
WITH created AS (
    INSERT INTO task_groups (name, user_group_id, creator_id, tags, labels, tag_match, priority,
           worker_allocation_plan, environment_setup_hook, environment_teardown_hook, environment_probe,
           auto_close_timeout_seconds, close_deadline, max_managers, assignment_method, reopen_on_submit,
           cancel_grace_seconds, host_lost_after_seconds, fence, on_setup_failure, kind, preference_seconds)
    SELECT %(name)s, o.id, u.id, %(tags)s::text[], %(labels)s::text[], %(tag_match)s, %(priority)s,
           %(plan)s::jsonb, %(setup)s::jsonb, %(teardown)s::jsonb, %(probe)s::jsonb, %(auto_close)s, %(close_deadline)s,
           %(max_managers)s, %(assignment_method)s, %(reopen_on_submit)s, %(cancel_grace)s,
           %(host_lost_after)s, %(fence)s, %(on_setup_failure)s, %(kind)s, %(preference_seconds)s
      FROM users AS u JOIN user_groups AS o ON o.name = coalesce(%(group_name)s::text, u.username)
     WHERE u.uuid = %(user)s AND o.state = 'active'
    RETURNING id, uuid, creator_id
), live AS (
    INSERT INTO group_live (group_id) SELECT id FROM created
), pokes AS (
    INSERT INTO outbox (kind, subject) SELECT 'task_group', uuid FROM created
    RETURNING 1
)
SELECT c.id, c.uuid,
       CASE WHEN EXISTS (SELECT FROM pokes) THEN pg_notify('mitosis_outbox', '') END AS relay_notified
  FROM created AS c

-- name: hosts_of_group
-- Hosts whose cores are known and that may work for the group's user group.
SELECT m.name, m.cores
  FROM task_groups AS g
  JOIN user_group_managers AS r ON r.user_group_id = g.user_group_id AND r.role IN ('write', 'admin')
  JOIN managers AS m ON m.id = r.manager_id AND m.cores <> '{}'
 WHERE g.id = %(group_number)s
 ORDER BY m.id LIMIT 1000

-- name: hosts_with_tags
-- All hosts that may work for the group's user group.
SELECT m.name, m.tags, m.cores
  FROM task_groups AS g
  JOIN user_group_managers AS r ON r.user_group_id = g.user_group_id AND r.role IN ('write', 'admin')
  JOIN managers AS m ON m.id = r.manager_id AND m.deleted_at IS NULL
 WHERE g.id = %(group_number)s
 ORDER BY m.id

-- name: find
SELECT g.uuid FROM task_groups AS g JOIN user_groups AS u ON u.id = g.user_group_id
 WHERE u.name = %(group_name)s AND g.name = %(name)s

-- name: update
UPDATE task_groups AS g
   SET tags = coalesce(%(tags)s::text[], g.tags), labels = coalesce(%(labels)s::text[], g.labels),
       tag_match = coalesce(%(tag_match)s::text, g.tag_match),
       priority = coalesce(%(priority)s::int, g.priority),
       worker_allocation_plan = coalesce(%(plan)s::jsonb, g.worker_allocation_plan),
       cancel_grace_seconds = coalesce(%(cancel_grace)s::float8, g.cancel_grace_seconds),
       reopen_on_submit = coalesce(%(reopen_on_submit)s::boolean, g.reopen_on_submit),
       on_setup_failure = coalesce(%(on_setup_failure)s::text, g.on_setup_failure),
       auto_close_timeout_seconds = CASE WHEN %(sets_auto_close)s THEN %(auto_close)s::float8
                                         ELSE g.auto_close_timeout_seconds END,
       max_managers = CASE WHEN %(sets_max_managers)s THEN %(max_managers)s::int ELSE g.max_managers END,
       -- Who is a member stays as it is until a refresh (C-32).
       member_tags = coalesce(g.member_tags, g.tags),
       member_tag_match = coalesce(g.member_tag_match, g.tag_match), updated_at = clock_timestamp()
 WHERE g.id = %(group_number)s
   AND (%(expected)s::timestamptz IS NULL OR g.updated_at = %(expected)s)
