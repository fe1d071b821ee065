-- Jobs and their versions.

-- name: add_job
INSERT INTO jobs (user_group_id, name)
SELECT o.id, %(name)s FROM user_groups AS o WHERE o.name = %(group_name)s AND o.state = 'active'
    ON CONFLICT (user_group_id, name) DO NOTHING

-- name: lock_job
-- From here until the commit no other version is stored. The next statement reads the last one.
SELECT j.id, j.uuid, j.latest
  FROM jobs AS j
  JOIN user_groups AS o ON o.id = j.user_group_id AND o.name = %(group_name)s AND o.state = 'active'
 WHERE j.name = %(name)s
   FOR UPDATE OF j

-- name: is_last
SELECT EXISTS (SELECT FROM job_versions AS v
                WHERE v.job_id = %(job)s AND v.version = %(latest)s AND v.digest = %(digest)s) AS same

-- name: add_version
WITH counted AS (
    UPDATE jobs AS j SET latest = j.latest + 1 WHERE j.id = %(job)s RETURNING j.latest
)
INSERT INTO job_versions (job_id, version, digest, definition, creator_id)
SELECT %(job)s, c.latest, %(digest)s, %(definition)s, u.id FROM counted AS c, users AS u WHERE u.uuid = %(user)s

-- name: job
-- One version; without a number the last one.
SELECT j.uuid AS job_id, j.name, o.name AS group_name, v.version, v.digest, u.username AS created_by, v.created_at,
       v.definition
  FROM jobs AS j
  JOIN user_groups AS o ON o.id = j.user_group_id
  JOIN job_versions AS v ON v.job_id = j.id AND v.version = coalesce(%(version)s::int, j.latest)
  JOIN users AS u ON u.id = v.creator_id
 WHERE j.uuid = %(job)s::uuid OR (o.name = %(group_name)s AND j.name = %(name)s)

-- name: jobs
SELECT j.uuid AS job_id, j.name, o.name AS group_name, v.version, v.digest, u.username AS created_by, v.created_at
  FROM jobs AS j
  JOIN user_groups AS o ON o.id = j.user_group_id
  JOIN job_versions AS v ON v.job_id = j.id AND v.version = j.latest
  JOIN users AS u ON u.id = v.creator_id
 WHERE (o.name, j.name) > (%(after_group)s, %(after_name)s)
   AND EXISTS (SELECT FROM users AS w
                WHERE w.uuid = %(viewer)s
                  AND (w.is_admin OR EXISTS (SELECT FROM user_group_members AS m
                                              WHERE m.user_id = w.id AND m.user_group_id = o.id)))
 ORDER BY o.name, j.name LIMIT %(limit)s

-- name: versions
-- The last one first.
SELECT j.uuid AS job_id, j.name, o.name AS group_name, v.version, v.digest, u.username AS created_by, v.created_at
  FROM jobs AS j
  JOIN user_groups AS o ON o.id = j.user_group_id
  JOIN job_versions AS v ON v.job_id = j.id
  JOIN users AS u ON u.id = v.creator_id
 WHERE j.uuid = %(job)s AND v.version < %(before)s
 ORDER BY v.version DESC LIMIT %(limit)s

-- name: lock_by_id
SELECT FROM jobs WHERE uuid = %(job)s FOR UPDATE

-- name: schedules_of
-- They keep the job: the next time of one would have nothing to run.
SELECT o.name || '/' || s.name AS name
  FROM jobs AS j JOIN schedules AS s ON s.job_id = j.id JOIN user_groups AS o ON o.id = s.user_group_id
 WHERE j.uuid = %(job)s ORDER BY s.name LIMIT 10

-- name: delete_job
DELETE FROM jobs WHERE uuid = %(job)s
