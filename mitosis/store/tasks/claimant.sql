-- Who claimed an attempt (protocol P2). Expressions for statements that take from a host what it says about a task.

-- name: live_epoch
-- Of the lease l: its own epoch, or the one that its manager has now. Its rows are under the latter after a hello.
CASE WHEN l.state <> 'ended' THEN l.epoch
     ELSE (SELECT n.epoch FROM leases AS n
            WHERE n.manager_id = l.manager_id AND n.kind = 'manager' AND n.state <> 'ended') END

-- name: claimed_here
-- Whether the manager of v claimed the present attempt of the open task o. While a task is claimed, its epoch
-- names the manager; what ends a claim without a report keeps it in claimed_by.
(o.epoch = v.live_epoch OR (o.epoch IS NULL AND o.claimed_by = v.manager_id))
