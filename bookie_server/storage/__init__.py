"""Stores the ledgers of one directory in a journal, an index for each file, and a MANIFEST.

- `ledger_storage`: the interface for the servers. `adds`: stores entries. `drops`: deletes ledgers.
  `releases`: deletes ledgers without a fence. `fences`: sets fences. `reading`: answers reads.
  `lacs`: last adds confirmed and their watches.
- `directories`: makes one storage of several directories.
- `shared`: state and counters that these parts share.
- `journal`: writes records in order and syncs them in groups. `files`: the files of the directory.
- `compaction`: copies the live entries of files with many deleted entries, and frees the files.
- `scrub`: reads finished files from the device, and looks for damage.
- `limbo`: the parts for possible losses: the answer "unknown", epochs of doubt, repaired entries.
- `modes`: the write modes, the journal files, the checkpoints, and the records of the last run.
- `boot`, `replay`, `open_files`: read the files of the directory, and repair them when the bookie
  starts.
- `device`: implements the ports for a real directory and asyncio; only `device` does I/O.
- `disk_watch`: measures the device, and refuses adds while too much of it is used.
- `spans`: ranges of consecutive entry ids. `wake_ups`: wakes waiting coroutines.
  `slices`: divides long work, so that other tasks can run.
"""
