"""A storage server that speaks the wire protocol of Apache BookKeeper.

- `core`: decisions and byte formats of its files, pure.
- `storage`: ledgers on one directory, below the interfaces of `ports`.
- `service`: the process: servers, registration, cookies, garbage collection.
- `config`: settings, from the command line, the environment and a file.
  `descriptors`: limits of open files and connections. `errors`: errors and exit codes.

It imports values, wire formats and metadata stores of `ledgerlog_spark`, which never imports it.
"""
