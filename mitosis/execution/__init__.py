"""Executes claimed tasks in process slots and reports how they ended.

The agent of a host and the process of a worker service share it. It knows neither leases of hosts nor
registrations: its owner makes the calls to the API.
"""
