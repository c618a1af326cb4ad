"""The host of the replication workers.

- `worker`: takes ledgers from the queues, and runs a job for each. `job_runner`: one job.
- `store_requests`: the requests of a job to the metadata store. `bookie_requests`: the requests to
  bookies. `quiet`: the time since an open ledger got an entry.
"""
