-- Progress and checkpoints of attempts that run in worker services.

-- name: record_progress
-- The open rows are locked, so that no later attempt is claimed between the check and the commit: it either
-- gets the checkpoint, or the attempt that stores it is answered that it does not count.
WITH given AS MATERIALIZED (
    SELECT g.*
      FROM unnest(%(groups)s::bigint[], %(ids)s::bigint[], %(attempts)s::int[], %(fractions)s::float8[],
                  %(stages)s::text[], %(messages)s::text[], %(checkpoints)s::text[])
           WITH ORDINALITY AS g (group_id, task_id, attempt, fraction, stage, message, checkpoint, place)
), running AS MATERIALIZED (
    SELECT o.id, o.attempt, g.fraction, g.stage, g.message, g.checkpoint, g.place
      FROM given AS g
      JOIN leases AS l ON l.worker_uuid = %(worker)s AND l.group_id = g.group_id AND l.kind = 'worker' AND l.state <> 'ended'
      JOIN open_task AS o ON o.group_id = g.group_id AND o.id = g.task_id
     WHERE o.attempt = g.attempt AND o.state = 1 AND NOT o.spent AND o.epoch = l.epoch
     ORDER BY o.group_id, o.id
       FOR SHARE OF o
)
UPDATE service_claims AS c
   SET fraction = coalesce(r.fraction, c.fraction), stage = coalesce(r.stage, c.stage),
       message = coalesce(r.message, c.message), checkpoint = coalesce(r.checkpoint::json, c.checkpoint),
       progress_at = now()
  FROM running AS r
 WHERE c.task_id = r.id AND c.attempt = r.attempt
RETURNING r.place
