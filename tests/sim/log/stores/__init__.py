"""Schedules of the metadata stores as they ship, call by call.

Each process has a session that is late, forgetful and behind, and makes calls of one kind. The
world keeps what each node held at every moment. So a call is judged by what was true while it ran,
and a failure that is certain by what came afterwards.

- `world`: sessions, what the nodes held, and what must hold after each change.
- `logs`: names, heads, pages and the removal of deleted logs.
- `ledgers`: registrations, marks, listings.
- `small`: ids, records of ledgers, the queue, leases and the clock.
- `held`: the lease as a pass of upkeep holds it.
- `schedule`: one schedule.
"""
