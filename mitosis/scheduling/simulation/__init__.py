"""Simulation of a fleet under the scheduling decision: which policy wastes how much, and who waits how long.

The decision is the one of the product, over a snapshot that is kept one fact at a time. Everything else is a
model: hosts, setups, tasks. All times are seconds from the begin of the simulation.

* ``workload``: what happens under every policy: hosts, task groups, tasks with durations, absences.
  ``synthetic`` makes one from a seed, ``recording`` reads and writes one as lines of JSON.
* ``simulator``: the events in the order of their times, and the rounds of the decision.
* ``entities``: the state of each host, task group and lease. ``fact_writer`` puts it into the snapshot.
* ``task_events``, ``lease_events``, ``host_events``: what each event does.
* ``conservation``: checks after a round that no host is kept from work (it does not use the decision).
* ``accounts`` counts and samples, ``result`` sums up, ``table`` and ``plot`` show it.
* ``comparison``: the rules and the policies that they are compared with.

Not in the model: tasks claimed in advance (an ending lease begins no task), retries, time to take an offer.
"""
