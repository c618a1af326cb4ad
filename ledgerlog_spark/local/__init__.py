"""A cluster on this machine, as processes: for notebooks, tests and the first hour.

- `cluster`: `local_cluster()`, and the cluster in one directory. `directory`, `members`: what that
  directory says of it.
- `zookeeper`, `bookie`, `upkeep`: one process each. `interrupts`: Ctrl-C reaches us and not them.
"""
