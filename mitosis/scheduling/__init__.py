"""Scheduling: which host serves which task group, decided by pure functions. Read this page first.

``decide(snapshot, now)`` returns what is to be done: offers of hosts, ends of leases, renewals, and the time
of the next decision. It reads a ``Snapshot`` and nothing else: no clock, no database, no random number. The
assignment round, the dry run, `explain` and the simulator call the same function.

* ``facts``: what is known about hosts, task groups and leases. ``snapshot`` keeps them, one fact at a time.
* ``host_sets``: a set of hosts is one integer, so 10,000 hosts are compared in a microsecond.
* ``predicates``: the ordered list of conditions for a host to be offered to a task group. The decision
  combines their sets; `explain` reads one host of each.
* ``sizes``: how many leases a task group can use. ``costs``: what a move of a host costs.
* ``waiting_line``: the order in which task groups that wait are served.
* ``decide``: the decision. ``offers`` gives free hosts, ``contest`` takes leased ones, ``duties`` ends leases
  for other reasons, ``wake`` finds the next time at which the clock alone changes something.
* ``simulation``: a fleet of simulated hosts under the decision, to compare policies.
* ``explain``: why a host does not serve a task group. ``smallest_change``: after which change one would.

All times are seconds on one clock, that of ``now``: its zero does not matter. Durations are seconds too.
"""
