-- The members of a task group as users see and change them (C-32). Expressions: leases/membership.sql.

-- name: hosts_to_change
-- The hosts that a user names for a group, in the order given: whether each exists, may serve it, and is a member.
SELECT u.uuid AS manager_id, m.id AS manager_number, t.assignment_method AS chosen,
       g.assignment_method, coalesce(m.id IS NOT NULL AND $may_serve$, false) AS allowed,
       coalesce(m.id IS NOT NULL AND $member$, false) AS is_member
  FROM task_groups AS g
 CROSS JOIN unnest(%(managers)s::uuid[]) WITH ORDINALITY AS u (uuid, place)
  LEFT JOIN managers AS m ON m.uuid = u.uuid
  LEFT JOIN task_group_managers AS t ON t.task_group_id = g.id AND t.manager_id = m.id
 WHERE g.id = %(group_number)s
 ORDER BY u.place

-- name: choose_managers
-- Record that a user added hosts to a group, or removed them.
INSERT INTO task_group_managers (task_group_id, manager_id, assignment_method, added_by_user_id)
SELECT DISTINCT %(group_number)s::bigint, m.id, %(chosen)s, (SELECT id FROM users WHERE uuid = %(user)s)
  FROM unnest(%(numbers)s::bigint[]) AS m (id)
    ON CONFLICT (task_group_id, manager_id) DO UPDATE
   SET assignment_method = excluded.assignment_method, added_by_user_id = excluded.added_by_user_id,
       added_at = now()
 WHERE task_group_managers.assignment_method <> excluded.assignment_method

-- name: matched_managers
-- The hosts that may serve the group and that its tags match as of the last refresh.
SELECT m.uuid AS manager_id
  FROM task_groups AS g
  JOIN user_group_managers AS r ON r.user_group_id = g.user_group_id AND r.role IN ('write', 'admin')
  JOIN managers AS m ON m.id = r.manager_id
 WHERE g.id = %(group_number)s AND g.assignment_method = 'tag_matched' AND $tags_match$
   AND NOT EXISTS (SELECT FROM task_group_managers AS t
                    WHERE t.task_group_id = g.id AND t.manager_id = m.id AND t.assignment_method <> 'tag_matched')
 ORDER BY m.id

-- name: match_again
UPDATE task_groups
   SET member_tags = NULL, member_tag_match = NULL, member_version = nextval('tag_version')
 WHERE id = %(group_number)s

-- name: added_managers
SELECT m.uuid AS manager_id
  FROM task_group_managers AS t JOIN managers AS m ON m.id = t.manager_id
 WHERE t.task_group_id = %(group_number)s AND t.assignment_method = 'user_specified'
 ORDER BY m.id

-- name: members
-- The members of the group, with how each was chosen; matched_tags are the common tags at the time of the match.
SELECT m.uuid AS manager_id, CASE WHEN t.id IS NULL THEN 'tag_matched' ELSE 'user_specified' END AS assignment_method,
       CASE WHEN t.id IS NULL
            THEN ARRAY(SELECT unnest(coalesce(g.member_tags, g.tags)) INTERSECT SELECT unnest($tags_then$) ORDER BY 1)
       END AS matched_tags,
       t.added_at, (SELECT u.uuid FROM users AS u WHERE u.id = t.added_by_user_id) AS added_by_user_id
  FROM task_groups AS g
 CROSS JOIN managers AS m
  LEFT JOIN task_group_managers AS t
    ON t.task_group_id = g.id AND t.manager_id = m.id AND t.assignment_method = 'user_specified'
 WHERE g.id = %(group_number)s AND m.id IN (
       SELECT r.manager_id FROM user_group_managers AS r
        WHERE r.user_group_id = g.user_group_id AND r.role IN ('write', 'admin')
        UNION
       SELECT x.manager_id FROM task_group_managers AS x
        WHERE x.task_group_id = g.id AND x.assignment_method = 'user_specified')
   AND $member$
