"""The asyncio hosts of the machines, the handles that people use, and their blocking face.

- `client`, `writer_handle`, `reader_handle`: the asyncio face. `services`: what handles share.
  `users`: what ends before its client is closed.
- `machine_host`: effects become calls, answers become events; one host for each machine.
  `event_queue`: what it shares with the host of leader logs. `ledger_bytes`: entries as bytes.
  `stall_watch`: ends a wait for a machine that gets no replies any more.
- `append_batches`, `append_pace`: what makes an append cheap, and when it is sent.
- `blocking`, `blocking_writer`, `blocking_reader`: the same without `await`, on one `loop_thread`
  for each process; `add_future`: their futures. `batch_queue`: batches that come ahead of who
  takes them. `closing`: what `with` closes.
- `lac_announcer`, `ledger_follower`: the end of a ledger that is being written, told and followed.
- `ledger_creation`: a new ledger's record. `writable_bookies`: where it can be placed. `drawn_ids`:
  ids drawn for ledgers to come.
  `recent_records`: those that were read lately. `known_ends`: the ends of ledgers that were seen.
- `entry_copies`: asks every bookie for its copy, for checks.
- `errors_from_codes`: the one table from outcomes to exceptions, and what each lets a caller
  conclude.
- `settings`: timeouts and limits. `password_file`: a password out of a file.

`ledgerlog_spark.connect` puts them together with a transport and the metadata stores.
"""
