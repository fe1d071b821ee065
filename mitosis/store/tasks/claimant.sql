-- Who claimed an attempt (protocol P2). Expressions for statements that take from a host, or from a worker service,
-- what it says about a task. Their row v has the live_epoch of the lease, and the claimant: the number of the
-- manager, or of the service (P10).

-- name: live_epoch
-- Of the lease l: its own epoch, or the one that its manager has now. Its rows are under the latter after a hello.
CASE WHEN l.state <> 'ended' THEN l.epoch
     ELSE (SELECT n.epoch FROM leases AS n
            WHERE n.manager_id = l.manager_id AND n.kind = 'manager' AND n.state <> 'ended') END

-- name: live_epoch_of_service
-- Of the lease l of a worker service: the one that the service has now in the same group.
(SELECT n.epoch FROM leases AS n
  WHERE n.worker_uuid = l.worker_uuid AND n.group_id = l.group_id AND n.kind = 'worker' AND n.state <> 'ended')

-- name: claimed_here
-- Whether the claimant of v claimed the present attempt of the open task o. While a task is claimed, its epoch
-- names the claimant; what ends a claim without a report keeps it in claimed_by.
(o.epoch = v.live_epoch OR (o.epoch IS NULL AND o.claimed_by = v.claimant))
