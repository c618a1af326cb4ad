"""Schedules of leader logs as they ship: `Leader`, its host, readers, stores, sweeper and upkeep.

The machine's own simulation (`tests.sim.leader`) tells the machine by itself what happens. Here it
is hosted as it ships, on a tree of nodes whose every request is a scheduling point, each process
with a session and a wall clock of its own (`tests.sim.log.hosts`). The quorums of ledgers are those
of `tests.sim.leader.ledgers`.

- `ledgers`: the part of a client that leaders and their readers need.
- `view`: what the store holds of one log, and the checks of it.
- `truth`: what was appended, acknowledged and read, record by record.
- `actors`: what processes do.
- `world`: one schedule.
"""
