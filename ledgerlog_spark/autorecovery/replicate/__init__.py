"""The host of the replication workers.

- `worker`: takes ledgers from the queues, and runs a job for each. `job_runner`: one job.
- `store_requests`: the requests of a job to the metadata store. `bookie_requests`: those to
  bookies. `quiet`: for how long open ledgers have got no entry.
"""
