"""The files of a bookie's directory.

- `keeper`: which files there are, and which may be reused. `manifest`: the durable list of them.
- `entry_log_file`: one file in memory. `active_index`: the index of a file that is still written.
  `index_rebuilds`: repairs of a damaged index. `held`: the finished files.
- `pool`: opens files when they are used, a bounded count at a time. `slots`: preallocated files.
  `pins`: files that are being read.
"""
