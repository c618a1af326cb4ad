"""Plans scans for the JVM engine, which reads the entries itself.

- `worker`: the program that Spark runs in its planner workers for the JVM engine.
- `answers`: the answer to one request, as JSON. The answer contains a plan, or values, or the
  reason why the Python source has to run the scan.
- `origins`: finds the columns of a scan in the stored rows.
- `aggregates`: computes values from the statistics in the list of the log.
- `batches`: micro-batches, which the Python stream has planned.
"""
