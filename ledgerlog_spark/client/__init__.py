"""The asyncio client, its handles, and the blocking client.

- `client`: creates, opens, seals, lists and deletes ledgers. `handles`: the objects that write and
  read ledgers.
- `host`: performs the effects of the machines. `blocking`: the calls of clients and handles,
  without `await`.
- `append_queue`: gathers appends into runs. `payloads`: checks appended payloads. `arguments`:
  checks the types of arguments.
- `bookies`: the bookies from which ensembles are chosen. `lost_members`: notifies writers that a
  bookie is lost. `hole_reports`: reports the holes that writers and recoveries leave.
  `identities`: reads the identities of bookies for the machines. `seldom`: limits the number of log
  lines about the same situation.
- `services`: state that handles share. `settings`: time-outs and limits. `users`: ends registered
  objects before their client is closed. `password_file`: reads a password from a file.
- `recent_records`: metadata that was read recently. `errors_from_codes`: the table that assigns an
  exception to each outcome.

`ledgerlog_spark.composition` combines these modules with a transport and the metadata stores.
"""
