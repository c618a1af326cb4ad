"""The ledgers of one directory: one log of records, an index for each file, a MANIFEST.

- `ledger_storage`: the face, and what puts the rest together. `counters`: what it counts.
- `adds`, `read_answers`, `drops`: the ways of requests. `lac_watches`: who hears of a new LAC.
  `log`: records in one order, synced in groups. `wake_ups`: of coroutines that wait.
  `slices`: how much work is done in one turn of the event loop.
- `reads`: finds and reads entries; `readings` drives that. `active_index`, `entry_log_file`,
  `recent_bodies`: where they are. `spans`: which entries there are.
  `index_rebuilds`: what damage leads to.
- `file_pool`: opens files when they are used, a bounded count of them at a time.
- `file_keeper`, `held_files`, `slots`, `pins`, `manifest`: which files there are, and which may go.
- `boot`, `replay`: from what is on the device to files that can serve.
- `os_filesystem`, `os_thread`, `os_runtime`: the ports on a real directory and under asyncio;
  nothing else here touches the world. `written_cache`: what writes leave in the page cache.
"""
