-- The processes that run now. Each has one row, which it writes every few seconds.

-- name: beat
INSERT INTO live_processes (id, kind, version, host_name, pid, knows, beat_at)
VALUES (%(id)s, %(kind)s, %(version)s, %(host_name)s, %(pid)s, %(knows)s, clock_timestamp())
    ON CONFLICT (id) DO UPDATE SET beat_at = excluded.beat_at

-- name: reap
-- Rows of processes that were killed.
DELETE FROM live_processes
 WHERE id = ANY(ARRAY(SELECT p.id FROM live_processes AS p
                       WHERE p.beat_at < clock_timestamp() - make_interval(secs => %(gone_after)s)
                         FOR UPDATE SKIP LOCKED))

-- name: remove
DELETE FROM live_processes WHERE id = %(id)s

-- name: live
-- The second part: processes of versions that write no row. They are seen by what they listen to. A later
-- version may have processes of other kinds.
SELECT p.kind, p.version, p.host_name, p.pid, p.knows, p.started_at,
       extract(epoch FROM clock_timestamp() - p.beat_at)::float8 AS silent_seconds
  FROM live_processes AS p
 WHERE p.beat_at >= clock_timestamp() - make_interval(secs => %(gone_after)s) AND p.kind IN ('api', 'control')
 UNION ALL
SELECT CASE a.query WHEN 'LISTEN mitosis_wake' THEN 'api' ELSE 'control' END, NULL, host(a.client_addr), NULL,
       '{}', a.backend_start, 0
  FROM pg_stat_activity AS a
 WHERE a.datname = current_database() AND a.application_name = 'mitosis'
   AND a.query IN ('LISTEN mitosis_wake', 'LISTEN mitosis_outbox')
 ORDER BY 1, 6
