-- Who has valid tokens, and how all tokens of one holder end. Tokens themselves are not stored.

-- name: issued_user
UPDATE users SET tokens_expire_at = greatest(tokens_expire_at, %(expires_at)s)
 WHERE uuid = %(id)s AND token_version = %(version)s

-- name: issued_manager
UPDATE managers SET tokens_expire_at = greatest(tokens_expire_at, %(expires_at)s)
 WHERE uuid = %(id)s AND token_version = %(version)s

-- name: issued_worker
UPDATE worker_services SET tokens_expire_at = greatest(tokens_expire_at, %(expires_at)s)
 WHERE uuid = %(id)s AND token_version = %(version)s

-- name: revoke_user
UPDATE users SET token_version = token_version + 1, tokens_expire_at = now()
 WHERE uuid = %(id)s AND state <> 'deleted'
RETURNING token_version

-- name: revoke_manager
UPDATE managers SET token_version = token_version + 1, tokens_expire_at = now()
 WHERE uuid = %(id)s AND deleted_at IS NULL
RETURNING token_version

-- name: revoke_worker
UPDATE worker_services SET token_version = token_version + 1, tokens_expire_at = now()
 WHERE uuid = %(id)s
RETURNING token_version

-- name: holders
-- Those whose tokens the viewer may revoke: itself; hosts and worker services of user groups in which it is
-- admin; for an administrator all. A null end is not known: the token was issued by an earlier version.
WITH viewer AS (SELECT id, is_admin FROM users WHERE uuid = %(viewer)s),
mine AS (
    SELECT b.user_group_id FROM user_group_members AS b JOIN viewer AS v ON v.id = b.user_id
     WHERE b.role = 'admin'
), holders AS (
    SELECT 'user' AS kind, u.uuid AS id, u.username AS name, u.token_version, u.tokens_expire_at
      FROM users AS u, viewer AS v
     WHERE u.state = 'active' AND (v.is_admin OR u.id = v.id)
    UNION ALL
    SELECT 'manager', m.uuid, m.name, m.token_version, m.tokens_expire_at
      FROM managers AS m, viewer AS v
     WHERE m.deleted_at IS NULL
       AND (v.is_admin OR EXISTS (SELECT FROM user_group_managers AS r JOIN mine USING (user_group_id)
                                   WHERE r.manager_id = m.id))
    UNION ALL
    SELECT 'worker', s.uuid, s.worker_id, s.token_version, s.tokens_expire_at
      FROM worker_services AS s, viewer AS v
     WHERE v.is_admin OR EXISTS (SELECT FROM user_group_workers AS r JOIN mine USING (user_group_id)
                                  WHERE r.service_id = s.id)
)
SELECT kind, id, name, token_version, tokens_expire_at AS valid_until
  FROM holders
 WHERE (tokens_expire_at IS NULL OR tokens_expire_at > now())
   AND (kind, name, id::text) > (%(after_kind)s, %(after_name)s, %(after_id)s)
 ORDER BY kind, name, id::text
 LIMIT %(limit)s

-- name: no_longer_valid
-- Which of the held calls (by their place) have a token that is revoked, or lost the role that they began with.
SELECT h.place::int AS place
  FROM unnest(%(kinds)s::text[], %(ids)s::uuid[], %(versions)s::int[], %(groups)s::uuid[], %(roles)s::text[])
       WITH ORDINALITY AS h (kind, id, version, task_group, role, place)
  LEFT JOIN users AS u
         ON h.kind = 'user' AND u.uuid = h.id AND u.state = 'active' AND u.token_version = h.version
  LEFT JOIN managers AS m
         ON h.kind = 'manager' AND m.uuid = h.id AND m.deleted_at IS NULL AND m.token_version = h.version
  LEFT JOIN worker_services AS s
         ON h.kind = 'worker' AND s.uuid = h.id AND s.token_version = h.version
 WHERE coalesce(u.id, m.id, s.id) IS NULL
    OR (h.task_group IS NOT NULL AND NOT u.is_admin AND EXISTS (
           SELECT FROM task_groups AS t
            WHERE t.uuid = h.task_group
              AND NOT EXISTS (SELECT FROM user_group_members AS b
                               WHERE b.user_group_id = t.user_group_id AND b.user_id = u.id
                                 AND b.role = h.role)))
