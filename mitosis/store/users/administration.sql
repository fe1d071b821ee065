-- Accounts as administrators see and change them.

-- name: page
SELECT u.uuid AS user_id, u.username, u.is_admin, u.state, u.created_at,
       coalesce(
           (SELECT jsonb_object_agg(g.name, m.role)
              FROM user_group_members AS m
              JOIN user_groups AS g ON g.id = m.user_group_id AND g.state = 'active'
             WHERE m.user_id = u.id),
           '{}'
       ) AS groups
  FROM users AS u
 WHERE u.state <> 'deleted' AND u.username > %(after)s
   AND (%(username)s::text IS NULL OR u.username = %(username)s)
 ORDER BY u.username
 LIMIT %(limit)s

-- name: set_password
-- Every token that was issued under the old password ends.
UPDATE users
   SET password_hash = %(password_hash)s, token_version = token_version + 1, tokens_expire_at = now()
 WHERE username = %(username)s AND state <> 'deleted'
RETURNING uuid AS user_id

-- name: set_locked
-- Idempotent. The tokens of a locked user stay dead when it is unlocked.
UPDATE users
   SET state = CASE WHEN %(locked)s THEN 'locked' ELSE 'active' END,
       token_version = token_version + CASE WHEN %(locked)s AND state = 'active' THEN 1 ELSE 0 END,
       tokens_expire_at = CASE WHEN %(locked)s THEN now() ELSE tokens_expire_at END
 WHERE username = %(username)s AND state <> 'deleted'
RETURNING uuid AS user_id
