"""The ledgers of one directory: a journal of records, an index for each file, a MANIFEST.

- `ledger_storage`: the interface for the servers. `adds`, `drops`: adds and deletions of ledgers.
  `fences`: sets fences. `reading`: reads. `lacs`: last adds confirmed and their watches.
- `shared`: state and counters that these parts share.
- `journal`: records in one order, synced in groups. `files`: the files of the journal.
- `boot`, `replay`: turn the files on the device into files that can be served.
- `device`: the ports on a real directory and under asyncio; nothing else here does I/O.
- `spans`: sets of consecutive entry ids. `wake_ups`: wakes waiting coroutines. `slices`: bounds
  the work in one turn of the event loop.
"""
