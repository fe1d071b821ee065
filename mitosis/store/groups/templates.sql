-- Templates of task groups.

-- name: save_template
INSERT INTO task_group_templates (user_group_id, name, spec, creator_id)
SELECT o.id, %(name)s, %(spec)s, u.id
  FROM users AS u, user_groups AS o
 WHERE u.uuid = %(user)s AND o.name = %(group_name)s AND o.state = 'active'
RETURNING uuid

-- name: replace_template
INSERT INTO task_group_templates AS t (user_group_id, name, spec, creator_id)
SELECT o.id, %(name)s, %(spec)s, u.id
  FROM users AS u, user_groups AS o
 WHERE u.uuid = %(user)s AND o.name = %(group_name)s AND o.state = 'active'
    ON CONFLICT (user_group_id, name) DO UPDATE
   SET spec = excluded.spec, creator_id = excluded.creator_id, updated_at = now()
RETURNING uuid

-- name: template
SELECT t.uuid AS template_id, t.name, o.name AS group_name, t.spec, u.username AS created_by,
       t.created_at, t.updated_at
  FROM task_group_templates AS t
  JOIN user_groups AS o ON o.id = t.user_group_id
  JOIN users AS u ON u.id = t.creator_id
 WHERE t.uuid = %(template)s::uuid OR (o.name = %(group_name)s AND t.name = %(name)s)

-- name: templates
SELECT t.uuid AS template_id, t.name, o.name AS group_name, t.spec, u.username AS created_by,
       t.created_at, t.updated_at
  FROM task_group_templates AS t
  JOIN user_groups AS o ON o.id = t.user_group_id
  JOIN users AS u ON u.id = t.creator_id
 WHERE (o.name, t.name) > (%(after_group)s, %(after_name)s)
   AND EXISTS (SELECT FROM users AS v
                WHERE v.uuid = %(viewer)s
                  AND (v.is_admin OR EXISTS (SELECT FROM user_group_members AS m
                                              WHERE m.user_id = v.id AND m.user_group_id = o.id)))
 ORDER BY o.name, t.name LIMIT %(limit)s

-- name: delete_template
DELETE FROM task_group_templates WHERE uuid = %(template)s
