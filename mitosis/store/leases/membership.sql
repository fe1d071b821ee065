-- Whether a host is a member of a task group (C-32): expressions over managers AS m and task_groups AS g, and the
-- end of leases of others. What a user said is a row; what tags match is computed from the tags on both sides at
-- the last refresh, so that a new host is matched without a row for each group.

-- name: tags_then
-- The tags that the host m had when the members of the group g were matched.
coalesce((SELECT f.tags FROM former_manager_tags AS f
           WHERE f.manager_id = m.id AND f.until_version > g.member_version
           ORDER BY f.until_version LIMIT 1), m.tags)

-- name: tags_match
(SELECT CASE coalesce(g.member_tag_match, g.tag_match)
             WHEN 'all' THEN x.had @> x.wanted ELSE x.wanted = '{}' OR x.had && x.wanted END
   FROM (SELECT $tags_then$ AS had, coalesce(g.member_tags, g.tags) AS wanted) AS x)

-- name: member
(CASE (SELECT t.assignment_method FROM task_group_managers AS t
        WHERE t.task_group_id = g.id AND t.manager_id = m.id)
      WHEN 'user_specified' THEN true
      WHEN 'removed' THEN false
      ELSE g.assignment_method = 'tag_matched' AND $tags_match$ END)

-- name: may_serve
-- Whether the host m has a write role in the user group that owns the group g.
EXISTS (SELECT FROM user_group_managers AS r
         WHERE r.user_group_id = g.user_group_id AND r.manager_id = m.id AND r.role IN ('write', 'admin'))

-- name: hold_tags
-- Changes of the tags of hosts and refreshes take turns, so that a refresh shows what it changed.
SELECT pg_advisory_xact_lock(hashtext('mitosis.tags'))

-- name: end_leases_of_others
-- Withdraw the group's offers to hosts that are no longer members, and start to end their leases: what runs there
-- finishes, what has not started is returned. The caller holds the group and all its leases.
WITH ended AS (
    UPDATE leases AS l
       SET state = CASE WHEN l.state = 'offered' THEN 'ended' ELSE 'ending' END,
           ended_at = CASE WHEN l.state = 'offered' THEN now() END, end_reason = 'moved'
      FROM managers AS m, task_groups AS g
     WHERE l.group_id = %(group_number)s AND l.kind = 'manager' AND l.state IN ('offered', 'active')
       AND m.id = l.manager_id AND g.id = l.group_id AND NOT $member$
    RETURNING l.group_id, m.uuid
), pokes AS (
    INSERT INTO outbox (kind, subject) SELECT 'manager', uuid FROM ended
    UNION ALL SELECT 'scheduler', NULL
    RETURNING 1
)
SELECT CASE WHEN EXISTS (SELECT FROM pokes) THEN pg_notify('mitosis_outbox', '') END AS notified_relay,
       CASE WHEN EXISTS (SELECT FROM ended)
            THEN pg_notify('mitosis_wake', %(group_number)s::bigint::text) END AS notified_claims
