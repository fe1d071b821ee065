-- Counting unfinished tasks.

-- name: queued
-- Unfinished tasks of a group, in the groups of the user who created it, and in total. No row: it is gone.
SELECT mine.unfinished, coalesce(sum(v.unfinished), 0)::bigint AS total,
       coalesce(sum(v.unfinished) FILTER (WHERE g.creator_id = mine.creator_id), 0)::bigint AS mine
  FROM (SELECT g.creator_id, l.unfinished FROM task_groups AS g JOIN group_live AS l ON l.group_id = g.id
         WHERE g.uuid = %(group)s) AS mine
  LEFT JOIN (group_live AS v JOIN task_groups AS g ON g.id = v.group_id) ON v.settled_at IS NULL
 GROUP BY mine.unfinished
