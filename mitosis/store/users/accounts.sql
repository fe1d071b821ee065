-- Accounts, user groups and roles.

-- name: user
-- An active account by its id, with its role in each of its active groups.
SELECT u.uuid AS user_id, u.username, u.is_admin, u.token_version, u.password_hash,
       coalesce(
           (SELECT jsonb_object_agg(g.name, m.role)
              FROM user_group_members m
              JOIN user_groups g ON g.id = m.user_group_id AND g.state = 'active'
             WHERE m.user_id = u.id),
           '{}'
       ) AS groups
  FROM users u
 WHERE u.state = 'active'
   AND (u.uuid = %(user_id)s::uuid OR u.username = %(username)s::text);

-- name: create
-- An account and the group of the same name in which it is admin: both or neither. If an account or a group
-- has the name, no row is returned (the insert of the group then has no creator).
WITH made AS (
    INSERT INTO users (username, password_hash, is_admin)
    SELECT %(username)s, %(password_hash)s, %(is_admin)s
     WHERE NOT EXISTS (SELECT FROM user_groups WHERE name = %(username)s)
    ON CONFLICT (username) DO NOTHING
    RETURNING id, uuid
), owned AS (
    INSERT INTO user_groups (name, creator_id) SELECT %(username)s, id FROM made RETURNING id
), joined AS (
    INSERT INTO user_group_members (user_group_id, user_id, role)
    SELECT owned.id, made.id, 'admin' FROM owned, made
)
SELECT uuid AS user_id FROM made;

-- name: role_in_group
-- One row if the user group exists; role is null for a user who is not in it.
SELECT CASE WHEN u.is_admin THEN 'admin' ELSE m.role END AS role
  FROM user_groups g
  LEFT JOIN users u ON u.uuid = %(user_id)s AND u.state = 'active'
  LEFT JOIN user_group_members m ON m.user_group_id = g.id AND m.user_id = u.id
 WHERE g.name = %(group_name)s AND g.state = 'active';

-- name: role_in_task_group
-- The same as role_in_group, for the user group that owns a task group.
SELECT CASE WHEN u.is_admin THEN 'admin' ELSE m.role END AS role
  FROM task_groups t
  JOIN user_groups g ON g.id = t.user_group_id
  LEFT JOIN users u ON u.uuid = %(user_id)s AND u.state = 'active'
  LEFT JOIN user_group_members m ON m.user_group_id = g.id AND m.user_id = u.id
 WHERE t.uuid = %(task_group_id)s;

-- name: add_member
-- No row if there is no such group or user.
INSERT INTO user_group_members AS m (user_group_id, user_id, role)
SELECT g.id, u.id, %(role)s
  FROM user_groups g, users u
 WHERE g.name = %(group_name)s AND u.username = %(username)s
ON CONFLICT (user_group_id, user_id) DO UPDATE SET role = excluded.role
RETURNING (SELECT uuid FROM users WHERE id = m.user_id) AS user_id;

-- name: roles_in
-- User groups by name with the user's role in each (null = none).
SELECT g.id, g.name, m.role
  FROM user_groups g
  LEFT JOIN user_group_members m
         ON m.user_group_id = g.id AND m.user_id = (SELECT id FROM users WHERE uuid = %(user_id)s)
 WHERE g.name = ANY(%(names)s::text[]) AND g.state = 'active';
