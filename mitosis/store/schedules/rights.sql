-- Whose rights the run of a schedule has, and whether they may start it now.

-- name: rights
-- No row: the schedule has another owner by now, or was deleted.
SELECT o.name || '/' || s.name AS schedule, u.username AS owner, o.name AS group_name,
       u.state = 'active' AND (u.is_admin OR EXISTS (
           SELECT FROM user_group_members AS m
            WHERE m.user_id = u.id AND m.user_group_id = o.id AND m.role IN ('write', 'admin'))) AS may_start,
       w.username AS stored_by,
       w.id = u.id OR w.is_admin OR v.version <= coalesce(s.accepted_version, 0) AS is_accepted
  FROM schedules AS s
  JOIN users AS u ON u.id = s.creator_id AND u.uuid = %(owner)s
  JOIN user_groups AS o ON o.id = s.user_group_id
  JOIN job_versions AS v ON v.job_id = s.job_id AND v.version = %(version)s
  JOIN users AS w ON w.id = v.creator_id
 WHERE s.id = %(schedule)s
