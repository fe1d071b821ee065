-- Changing the tags of a host (C-32).

-- name: keep_former_tags
-- Keep what was, if a group was matched by it. Before the first hello there is nothing to keep: the hello matches
-- the host again.
INSERT INTO former_manager_tags (manager_id, until_version, tags)
SELECT m.id, nextval('tag_version'), m.tags
  FROM managers AS m
 WHERE m.id = %(manager_number)s AND m.incarnation > 0 AND m.tags <> %(tags)s::text[]
   AND EXISTS (SELECT FROM task_groups AS g JOIN group_live AS v ON v.group_id = g.id
                WHERE v.settled_at IS NULL
                  AND g.member_version >= coalesce((SELECT max(f.until_version) FROM former_manager_tags AS f
                                                     WHERE f.manager_id = m.id), 0))

-- name: forget_former_tags
-- Tags from before the last match of every group that has not settled are of no use.
DELETE FROM former_manager_tags
 WHERE manager_id = %(manager_number)s
   AND until_version <= ALL (SELECT g.member_version FROM task_groups AS g JOIN group_live AS v ON v.group_id = g.id
                              WHERE v.settled_at IS NULL)

-- name: set_tags
UPDATE managers SET tags = %(tags)s::text[], updated_at = now()
 WHERE id = %(manager_number)s AND tags <> %(tags)s::text[]
