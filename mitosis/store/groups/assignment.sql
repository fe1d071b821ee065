-- Which managers are listed for a task group.

-- name: may_serve
-- Whether a manager may serve a group: a write role in the user group that owns it.
SELECT g.id AS group_number, m.id AS manager_number,
       EXISTS (SELECT FROM user_group_managers AS r WHERE r.user_group_id = g.user_group_id
                  AND r.manager_id = m.id AND r.role IN ('write', 'admin')) AS allowed
  FROM task_groups AS g LEFT JOIN managers AS m ON m.uuid = %(manager)s
 WHERE g.uuid = %(group)s

-- name: name_manager
INSERT INTO task_group_managers (task_group_id, manager_id, assignment_method, added_by_user_id)
SELECT %(group_number)s, m.id, 'user_specified', (SELECT id FROM users WHERE uuid = %(user)s)
  FROM managers AS m WHERE m.uuid = %(manager)s
    ON CONFLICT (task_group_id, manager_id) DO UPDATE SET assignment_method = 'user_specified'

-- name: unname_manager
-- Unlist the manager; start to end its active lease, or withdraw its offer.
WITH removed AS (
    DELETE FROM task_group_managers
     WHERE task_group_id = %(group_number)s AND manager_id = %(manager_number)s
    RETURNING manager_id
), ended AS (
    UPDATE leases AS l
       SET state = CASE WHEN l.state = 'offered' THEN 'ended' ELSE 'ending' END,
           ended_at = CASE WHEN l.state = 'offered' THEN now() END, end_reason = 'moved'
      FROM removed AS r
     WHERE l.group_id = %(group_number)s AND l.manager_id = r.manager_id
       AND l.state IN ('offered', 'active')
), pokes AS (
    INSERT INTO outbox (kind, subject) SELECT 'manager', %(manager)s::uuid FROM removed
    UNION ALL SELECT 'scheduler', NULL FROM removed
    RETURNING 1
)
SELECT CASE WHEN EXISTS (SELECT FROM pokes) THEN pg_notify('mitosis_outbox', '') END AS relay_notified
  FROM removed

-- name: refresh_managers
-- The managers whose tags match now; managers named by a user stay.
WITH fitting AS (
    SELECT g.id AS group_number, m.id AS manager_number,
           ARRAY(SELECT unnest(g.tags) INTERSECT SELECT unnest(m.tags)) AS matched
      FROM task_groups AS g
      JOIN user_group_managers AS r ON r.user_group_id = g.user_group_id AND r.role IN ('write', 'admin')
      JOIN managers AS m ON m.id = r.manager_id
     WHERE g.uuid = %(group)s
       AND (CASE g.tag_match WHEN 'all' THEN m.tags @> g.tags
                             ELSE g.tags = '{}' OR m.tags && g.tags END)
), gone AS (
    DELETE FROM task_group_managers AS t
     USING task_groups AS g
     WHERE g.uuid = %(group)s AND t.task_group_id = g.id AND t.assignment_method = 'tag_matched'
       AND t.manager_id NOT IN (SELECT manager_number FROM fitting)
    RETURNING t.manager_id
), still AS (
    UPDATE task_group_managers AS t SET matched_tags = f.matched
      FROM fitting AS f
     WHERE t.task_group_id = f.group_number AND t.manager_id = f.manager_number
       AND t.assignment_method = 'tag_matched' AND t.matched_tags <> f.matched
), added AS (
    INSERT INTO task_group_managers (task_group_id, manager_id, assignment_method, matched_tags)
    SELECT group_number, manager_number, 'tag_matched', matched FROM fitting
        ON CONFLICT (task_group_id, manager_id) DO NOTHING
    RETURNING manager_id
)
SELECT ARRAY(SELECT m.uuid FROM added AS a JOIN managers AS m ON m.id = a.manager_id ORDER BY m.id) AS added,
       ARRAY(SELECT m.uuid FROM gone AS d JOIN managers AS m ON m.id = d.manager_id ORDER BY m.id) AS removed,
       ARRAY(SELECT m.uuid FROM task_group_managers AS t JOIN managers AS m ON m.id = t.manager_id
               JOIN task_groups AS g ON g.id = t.task_group_id
              WHERE g.uuid = %(group)s AND t.assignment_method = 'user_specified' ORDER BY m.id) AS kept

-- name: listed_managers
SELECT m.uuid FROM task_group_managers AS t
  JOIN task_groups AS g ON g.id = t.task_group_id
  JOIN managers AS m ON m.id = t.manager_id
 WHERE g.uuid = %(group)s
