"""A cluster of processes on this machine, for notebooks, tests and first steps.

- `cluster`: the function `local_cluster()`, and the class for the cluster in one directory.
  `members`: the state of the cluster, in a file of that directory.
- `zookeeper`, `bookie`: run one server as a process. `interrupts`: protects these processes from
  Ctrl-C.
- `guardian`, `guardian_process`: stop a cluster if the process that owns it ended without stopping
  it. `running`: finds the clusters that run on this machine.
- `requirement`: builds the command that installs a missing package.
"""
