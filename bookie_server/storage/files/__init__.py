"""The files of a bookie's directory.

- `keeper`: owns the files and frees them. `manifest`: the durable list of them.
- `entry_log_file`: one file in memory. `active_index`: the index of a file that is still written.
  `index_rebuilds`: repairs of a damaged index. `held`: finished files, and readings under way.
- `pool`: opens files when they are used, a bounded number at a time. `slots`: preallocated files.
"""
