-- Reading the whole output of the tasks of a group (``reading.py``).

-- name: read_whole
-- Add or renew a reader of whole output, which has the rows up to a number; delete what expired.
WITH gone AS (
    DELETE FROM output_followers WHERE until < now() - interval '1 minute'
), old AS (
    DELETE FROM task_output AS t WHERE t.written_at < now() - interval '1 minute'
       AND NOT EXISTS (SELECT FROM output_followers AS f
                        WHERE f.group_id = t.group_id AND f.read_to < t.id AND f.until > now())
)
INSERT INTO output_followers (id, group_id, until, read_to)
VALUES (%(follower)s, %(group_number)s, now() + make_interval(secs => %(seconds)s), %(after)s)
    ON CONFLICT (id) DO UPDATE
   SET until = excluded.until, read_to = greatest(output_followers.read_to, excluded.read_to)
 WHERE output_followers.group_id = excluded.group_id

-- name: whole_after
SELECT t.id, t.task_id, t.attempt, t.stream, t.position, t.data
  FROM task_output AS t
 WHERE t.group_id = %(group_number)s AND t.id > %(after)s AND t.whole
 ORDER BY t.id LIMIT %(limit)s
