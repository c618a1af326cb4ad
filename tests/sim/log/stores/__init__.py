"""Schedules of the shipped metadata stores, call by call.

Each process has a session with late, lost and old answers, and makes calls of one kind. The world
keeps the history of each node. So a call is checked with the data of the time while it ran, and a
definite failure also with later data.

- `world`: sessions, the history of the nodes, and the checks after each change.
- `logs`: names, heads, pages and the removal of deleted logs.
- `ledgers`: registrations, marks, listings.
- `small`: ids, metadata of ledgers, the queue, leases and the clock.
- `held`: the lease of upkeep during a pass.
- `schedule`: one schedule.
"""
