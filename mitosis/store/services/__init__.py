"""What worker services call: register, heartbeat, goodbye, claims and reports (protocol P10).

The current registration of a service is its session and the fence of its claims. A lease of kind ``worker``
belongs to one service and one task group, is made by the first claim there, and ends with the registration or
with the settlement of the group. It has no clock, and its only duty are the tasks that are claimed under it.

Lock order: service, registration, leases by epoch, groups by number, task rows.
"""
