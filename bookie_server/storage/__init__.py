"""The ledgers of one directory: one journal of records, an index for each file, a MANIFEST.

- `ledger_storage`: what the servers call. `adds`, `drops`: adds and deletions of ledgers.
  `fences`: sets fences. `reading`: reads. `lacs`: last adds confirmed and their watches.
- `shared`: what these share, made once, and what they count.
- `journal`: records in one order, synced in groups. `files`: the files that it is written to.
- `boot`, `replay`: from what is on the device to files that can serve.
- `device`: the ports on a real directory and under asyncio; nothing else here does I/O.
- `spans`: sets of consecutive entry ids. `wake_ups`: of coroutines that wait. `slices`: how much
  work is done in one turn of the event loop.
"""
