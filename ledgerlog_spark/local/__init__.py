"""A cluster on this machine, as processes: for notebooks, tests and first steps.

- `cluster`: `local_cluster()`, and the cluster in one directory. `members`: the state in
  that directory.
- `zookeeper`, `bookie`: one process each. `interrupts`: Ctrl-C does not reach these processes.
- `guardian`, `guardian_process`: stop a cluster whose owner ended without stopping it.
  `running`: the clusters that run on this machine.
- `requirement`: the command that installs a missing package.
"""
