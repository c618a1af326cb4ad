"""The `ledgerlog` command. Its output is tables for people, or JSON for scripts.

- `main`: the command line, and the exit codes of errors. `logs`, `ledgers`, `bookies`, `local`,
  `servers`, `bookie_files`, `bookie_inspect`, `bookie_versions`, `doctor`, `demo`: one module or
  package for each group of commands. `dumped_entries`: the forms of the entries that `bookie dump`
  writes.
- `options`: options that several commands share. `output`, `drawing`: tables, JSON and pictures.
- `stop_signals`: stops a command on a signal, or when the reader of its output has ended.
"""
