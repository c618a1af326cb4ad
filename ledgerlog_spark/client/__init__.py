"""The asyncio client, its handles, and the same calls without `await`.

- `client`: creates, opens, seals, lists and deletes ledgers. `handles`: ledgers that are open.
- `host`: performs the effects of the machines. `blocking`: the same calls without `await`.
- `append_queue`: gathers appends, and sends them in time. `payloads`: what can be appended.
- `services`: what handles share. `settings`: timeouts and limits. `users`: what ends before its
  client is closed. `password_file`: a password out of a file.
- `writable_bookies`: where a ledger can be placed. `drawn_ids`: ids for ledgers to come.
  `recent_records`: metadata records that were read before.
- `errors_from_codes`: the one table from outcomes to exceptions.

`ledgerlog_spark.composition` combines them with a transport and the metadata stores.
"""
