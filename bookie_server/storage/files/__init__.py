"""The files of a bookie's directory.

- `keeper`: owns the files and frees them. `manifest`: the durable list of the files.
- `entry_log_file`: the state of one file in memory. `active_index`: the index of a file that is not
  finished. `index_rebuilds`: repairs damaged indexes. `finished_scan`: the records of a finished
  file. `held`: finished files. `live_bytes`: the sizes of a file's ledgers.
- `handover`: the files that compaction owns, and the exchange of files by one MANIFEST.
- `pool`: opens files when they are used, and limits the number of open files. It also counts the
  readings that use a file.
  `slots`: creates files before they are used. `room`: the room that is left in open files.
"""
