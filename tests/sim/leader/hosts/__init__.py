"""Schedules of shipped leader logs: `Leader`, its host, readers, stores, sweeper and upkeep.

The simulation of the machine alone (`tests.sim.leader`) itself creates the events of the machine.
Here, the machine runs in the shipped host, on a tree of nodes. Each request to the tree is a
scheduling point, and each process has its own session and wall clock (`tests.sim.log.hosts`). The
quorums of ledgers are those of `tests.sim.leader.ledgers`.

- `ledgers`: the part of a client that leaders and their readers need.
- `view`: the state of one log in the store, and its checks.
- `truth`: the appended, acknowledged and read records.
- `actors`: the actions of processes.
- `world`: one schedule.
"""
