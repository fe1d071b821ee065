-- Managers as user groups see them: registration, tokens.

-- name: register
WITH created AS (
    INSERT INTO managers (name, creator_id, tags, labels)
    SELECT %(name)s, u.id, %(tags)s::text[], %(labels)s::text[] FROM users AS u WHERE u.uuid = %(user)s
    RETURNING id, uuid, token_version
), live AS (
    INSERT INTO manager_live (manager_id) SELECT id FROM created
), members AS (
    INSERT INTO user_group_managers (user_group_id, manager_id, role)
    SELECT r.user_group_id, c.id, r.role
      FROM created AS c, unnest(%(group_numbers)s::bigint[], %(roles)s::text[]) AS r (user_group_id, role)
)
SELECT uuid, token_version FROM created

-- name: token_version
SELECT token_version FROM managers WHERE uuid = %(manager)s AND deleted_at IS NULL
