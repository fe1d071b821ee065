-- name: tell_watchers
-- Something of the group changed that is no counter: who watches looks again.
SELECT pg_notify('mitosis_wake', v.group_id || '!')
  FROM group_live AS v WHERE v.group_id = %(group_number)s AND v.watched
