"""Schedules of the log layer as it ships: hosts, stores, sweeper and upkeep, request by request.

The machines' own simulation (`tests.sim.log`) has a model of the store. Here `Log`, `LogHost`,
`Sweeper`, `Upkeep`, `Retries` and the stores run unchanged on a tree of nodes, each process with a
session and a wall clock of its own. Every request is a scheduling point at which it may be late,
lost, answered by a replica that is behind, or the last one of its process.

- `tree`: a session that is late, forgetful and behind.
- `process`: one process: its session, its hosts, its fake ledgers; it may crash.
- `actors`: what processes do.
- `view`: what the store holds of one log, and the checks of it.
- `blame`: which failures name a fault that happened.
- `world`: one schedule.
"""
