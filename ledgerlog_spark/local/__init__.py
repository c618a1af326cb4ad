"""A cluster on this machine, as processes: for notebooks, tests and the first hour.

- `cluster`: `local_cluster()`, and the cluster in one directory. `directory`, `members`: what that
  directory says of it.
- `zookeeper`, `bookie`: one process each. `interrupts`: Ctrl-C reaches us and not them.
- `guardian`, `guardian_process`: stop a cluster whose owner ended without stopping it.
  `running`: the clusters that run on this machine.
- `requirement`: the command that installs a missing package.
"""
