"""One storage server on the wire of Apache BookKeeper: what a bookie decides, stores and serves.

- `core`: decisions and byte formats of its files, pure.
- `storage`: ledgers on one directory, behind `ports`.
- `service`: the process: servers, registration, cookies, garbage collection.
- `config`: settings, from the command line, the environment and a file.
  `descriptors`: how many files and connections may be open. `errors`: errors and exit codes.

It imports values, wire formats and metadata stores of `ledgerlog_spark`, which never imports it.
"""
