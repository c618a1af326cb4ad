"""The asyncio host of the machines, the handles that people use, and their blocking face.

- `engine`: effects become calls, answers become events; one host for each machine.
- `client`, `writer_handle`, `reader_handle`: the asyncio face.
- `blocking`, `blocking_writer`, `blocking_reader`: the same without `await`, on one `loop_thread`
  for each process.
- `append_batches`, `add_future`: what makes an append cheap.
- `ledger_creation`: a new ledger's record.
- `errors_from_codes`: the one table from outcomes to exceptions, and what each lets a caller
  conclude.
- `settings`: timeouts and limits.

`ledgerlog_spark.connect` puts them together with a transport and the metadata stores.
"""
