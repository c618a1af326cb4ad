"""A cluster of processes on this machine, for notebooks, tests and first steps.

- `cluster`: `local_cluster()`, and the cluster in one directory. `members`: the state in
  that directory.
- `zookeeper`, `bookie`: one process each. `interrupts`: protects these processes from Ctrl-C.
- `guardian`, `guardian_process`: stop a cluster if its owner ended without stopping it.
  `running`: the clusters that run on this machine.
- `requirement`: the command that installs a missing package.
"""
