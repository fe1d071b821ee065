"""Leases: the protocol in words. Read this page before the modules.

A *lease* is the right of one manager (the database record of a host's agent) to claim tasks of one task
group. Its *epoch*, a number from one global sequence, names it for ever: each claim carries the epoch, and
each claimed task row holds it. A manager has at most one lease that has not ended; a unique index holds that.

A lease goes through four states (``lifecycle.LEASE``):

* OFFERED: the assignment round wrote it and poked the host. It has no clock. The host takes it by a
  compare-and-set, or the scheduler withdraws it.
* ACTIVE: the host may claim. Every authenticated call of the agent moves ``alive_until`` to the time of the
  call plus ``host_lost_after``.
* ENDING: no more claims; running tasks finish or are stopped, and report. A lease ends because its group
  ended, because another group goes first, or because its host leaves.
* ENDED: no task is held under the epoch.

Three rules keep tasks from being lost or stranded:

1. PostgreSQL decides. A host is lost only when ``alive_until`` has passed on the clock of PostgreSQL, and
   only while an API was alive to receive its calls (``managers.api_liveness``). Temporal only looks.
2. Only an ending requeues. A transaction that ends a lease locks its row, then the live row of its group,
   and scans the task rows in a later statement: a claim in flight either committed before and is found, or
   sees that the lease has ended and gets nothing. Only rows of exactly that epoch are requeued.
3. Suspect is not lost. A host that is silent for ``suspect_after`` is offered nothing new; nothing is
   requeued, and its lease goes on when it calls again.

Which host is offered to which group, and which lease ends for another group, is decided by
``mitosis.scheduling`` over facts that PostgreSQL supplies (``fleet``, ``fleet_snapshot``). The round
(``scheduler``) keeps them and reads what has changed (``kept_fleet``, ``fleet_rows``), decides, and writes
the actions (``actions``). ``reasons`` turns the first
condition that does not hold into a line for people (``no_host_reasons`` where no host is left). ``granting``
is the host's side of a lease, ``ending`` its end.

What a host failed at for a group is remembered in ``host_failures`` (``failures``, with texts in the module
``host_failures``) and read by the conditions: a failed setup until something changes, others for a growing
pause. When tasks fail on a host, ``verdicts`` decides whether the host or the tasks are to blame; ``doubt``
writes what follows. Until then the failures are doubted, which is neither an end nor another attempt.

Lock order everywhere: manager, lease, group, task rows, environments.
"""
