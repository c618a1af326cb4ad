"""The host of the replication workers.

- `worker`: takes ledgers from the queues, and runs a job for each ledger. `job_runner`: runs one
  job.
- `store_requests`: the requests of a job to the metadata store. `bookie_requests`: the requests of
  jobs to bookies. `quiet`: measures the time since an open ledger got its last entry.
"""
