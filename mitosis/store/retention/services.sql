-- Worker services that are gone, and what the others support no longer (C-34): pages as in deletion.sql.

-- name: worker_named_tasks
-- What a service supports no longer, once it holds nothing of it. A registration locks the service first; a row that
-- it has declared again meets no condition any more. Its service knows the numbers that are used.
WITH page AS MATERIALIZED (
    SELECT a.id, a.service_id, a.withdrawn_at FROM worker_named_tasks AS a
     WHERE a.withdrawn_at > %(seen_to)s::timestamptz AND a.withdrawn_at < now() - make_interval(secs => %(kept)s)
     ORDER BY a.withdrawn_at FETCH FIRST (%(limit)s) ROWS WITH TIES
), locked AS MATERIALIZED (
    SELECT s.id FROM worker_services AS s WHERE s.id = ANY(ARRAY(SELECT service_id FROM page))
     ORDER BY s.id
       FOR NO KEY UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM worker_named_tasks AS a
     WHERE a.id = ANY(ARRAY(SELECT id FROM page)) AND a.service_id = ANY(ARRAY(SELECT id FROM locked))
       AND a.withdrawn_at < now() - make_interval(secs => %(kept)s)
       AND NOT EXISTS (SELECT FROM worker_services AS s
                         JOIN leases AS l ON l.worker_uuid = s.uuid AND l.kind = 'worker' AND l.state <> 'ended'
                         JOIN open_task AS o ON o.group_id = l.group_id AND o.epoch = l.epoch AND o.state = 1
                        WHERE s.id = a.service_id AND o.named_task_id = a.named_task_id)
    RETURNING a.service_id, a.configuration_version
), noted AS (
    UPDATE worker_services AS s SET deleted_version = greatest(s.deleted_version, g.version)
      FROM (SELECT service_id, max(configuration_version) AS version FROM gone GROUP BY service_id) AS g
     WHERE s.id = g.service_id
)
SELECT (SELECT count(*) FROM gone) AS deleted, (SELECT max(withdrawn_at) FROM page) AS seen_to

-- name: gone_services
-- Locks those of a page of services that are gone for long and that nothing names. A registration waits, and finds no
-- service; one that came first is seen by the next statement.
WITH page AS MATERIALIZED (
    SELECT r.service_id, r.unregistered_at FROM worker_registrations AS r
     WHERE r.unregistered_at > %(seen_to)s::timestamptz
       AND r.unregistered_at < now() - make_interval(secs => %(kept)s)
     ORDER BY r.unregistered_at FETCH FIRST (%(limit)s) ROWS WITH TIES
), locked AS MATERIALIZED (
    SELECT s.id FROM worker_services AS s
     WHERE s.id = ANY(ARRAY(SELECT service_id FROM page)) AND $unneeded$
     ORDER BY s.id
       FOR UPDATE SKIP LOCKED
)
SELECT (SELECT coalesce(array_agg(id), '{}') FROM locked) AS services, (SELECT max(unregistered_at) FROM page) AS seen_to

-- name: unneeded
-- An expression over worker_services AS s that replaces $unneeded$: it has no registration but the one of the page,
-- and no task group exists that it has served: results name it.
s.groups_known
AND NOT EXISTS (SELECT FROM worker_registrations AS r WHERE r.service_id = s.id OFFSET 1)
AND NOT EXISTS (SELECT FROM leases AS l WHERE l.worker_uuid = s.uuid AND l.kind = 'worker')
AND NOT EXISTS (SELECT FROM group_services AS g WHERE g.service_id = s.id)

-- name: delete_services
-- The caller holds them: what is true now stays true. The rest of what belongs to a service goes along.
DELETE FROM worker_services AS s WHERE s.id = ANY(%(services)s::bigint[]) AND $unneeded$
