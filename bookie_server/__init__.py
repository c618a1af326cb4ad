"""A storage server that speaks the wire protocol of Apache BookKeeper.

- `core`: decisions and byte formats of the server's files, without I/O.
- `storage`: ledgers in one directory. The storage does all I/O through the interfaces of `ports`.
- `tools`: commands for the files of a stopped bookie.
- `service`: the process, with servers, registration, cookies and garbage collection.
- `config`: settings, from the command line, the environment and a file.
  `descriptors`: limits of open files and connections. `errors`: errors and exit codes.

This package imports values, wire formats and metadata stores of `ledgerlog_spark`.
`ledgerlog_spark` never imports this package.
"""
