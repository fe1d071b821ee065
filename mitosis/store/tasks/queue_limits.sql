-- Counting unfinished tasks.

-- name: queued
-- Unfinished tasks in total, and in the groups of the user who created this one.
SELECT coalesce(sum(v.unfinished), 0)::bigint AS total,
       coalesce(sum(v.unfinished) FILTER (WHERE g.creator_id = mine.creator_id), 0)::bigint AS mine
  FROM (SELECT creator_id FROM task_groups WHERE uuid = %(group)s) AS mine,
       group_live AS v JOIN task_groups AS g ON g.id = v.group_id
 WHERE v.settled_at IS NULL

-- name: unfinished
SELECT v.unfinished FROM group_live AS v JOIN task_groups AS g ON g.id = v.group_id WHERE g.uuid = %(group)s
