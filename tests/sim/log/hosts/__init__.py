"""Schedules of the shipped log layer: hosts, stores, sweeper and upkeep, request by request.

The simulation of the machines alone (`tests.sim.log`) has a model of the store. Here, `Log`,
`LogHost`, `Sweeper`, `Upkeep`, `Retries` and the stores run unchanged on a tree of nodes. Each
process has its own session and wall clock. Every request is a scheduling point: the request may be
late, lost, answered by a server that is behind, or the last request of its process.

- `tree`: a session with late, lost and old answers.
- `process`: one process with its session, hosts and fake ledgers; it may crash.
- `actors`: the actions of processes.
- `view`: the state of one log in the store, and its checks.
- `blame`: checks that the cause of a failure happened.
- `world`: one schedule.
"""
