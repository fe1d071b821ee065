-- How long the settled task groups of a user group are kept.

-- name: show
SELECT keep_seconds FROM user_groups WHERE name = %(name)s AND state = 'active'

-- name: keep
-- NULL: as the deployment says; Infinity: for ever.
UPDATE user_groups SET keep_seconds = %(keep_seconds)s WHERE name = %(name)s AND state = 'active'
RETURNING keep_seconds
