-- What hosts failed at, per host and task group (protocol P7). A row counts while the host has the
-- incarnation and the group the setup hook that it names.

-- name: record
-- A failure that no longer counts is replaced: its number in a row begins again.
INSERT INTO host_failures AS f (group_id, manager_id, kind, reason, incarnation, hook, next_at)
SELECT g.id, m.id, %(kind)s, %(reason)s, m.incarnation, md5(coalesce(g.environment_setup_hook::text, '')),
       now() + make_interval(secs => %(first)s::float8)
  FROM task_groups AS g, managers AS m
 WHERE g.id = %(group_number)s AND m.id = %(manager_number)s
    ON CONFLICT (group_id, manager_id, kind) DO UPDATE
   SET failures = CASE WHEN (f.incarnation, f.hook) = (excluded.incarnation, excluded.hook)
                       THEN f.failures + 1 ELSE 1 END,
       next_at = now() + make_interval(secs => CASE
           WHEN (f.incarnation, f.hook) = (excluded.incarnation, excluded.hook)
           THEN least(%(first)s::float8 * power(2, least(f.failures, 32)), %(longest)s::float8)
           ELSE %(first)s::float8 END),
       reason = excluded.reason, incarnation = excluded.incarnation, hook = excluded.hook,
       failed_at = now()

-- name: reached_since
-- Before a missed offer is recorded: after a minute without a pause the host may have been reachable, so that what it
-- missed before says nothing. Offers of all groups count, since they are made in turn.
DELETE FROM host_failures AS f
 WHERE f.manager_id = %(manager_number)s AND f.kind = 'unreachable'
   AND NOT EXISTS (SELECT FROM host_failures AS o
                    WHERE o.manager_id = f.manager_id AND o.kind = 'unreachable'
                      AND o.next_at > now() - make_interval(secs => %(apart)s::float8))

-- name: lift
-- By a user. Returns the names of the task groups.
WITH lifted AS (
    DELETE FROM host_failures AS f USING managers AS m
     WHERE m.uuid = %(manager)s AND f.manager_id = m.id AND (CASE f.kind WHEN 'tasks_failed' THEN 'quarantined' ELSE f.kind END) = ANY(%(kinds)b::text[])
       AND (%(group)s::uuid IS NULL
            OR f.group_id = (SELECT g.id FROM task_groups AS g WHERE g.uuid = %(group)s::uuid))
    RETURNING f.group_id
)
SELECT DISTINCT g.name, g.id FROM lifted AS f JOIN task_groups AS g ON g.id = f.group_id ORDER BY g.name, g.id

-- name: forget
DELETE FROM host_failures
 WHERE manager_id = %(manager_number)s AND kind = ANY(%(kinds)b::text[])
   AND (%(group_number)s::bigint IS NULL OR group_id = %(group_number)s)
