-- name: notify_watchers
-- For a change of the group that moves no counter; no notification without watchers.
SELECT pg_notify('mitosis_wake', v.group_id || '!')
  FROM group_live AS v WHERE v.group_id = %(group_number)s AND v.watched
