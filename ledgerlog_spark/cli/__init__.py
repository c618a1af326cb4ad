"""The `ledgerlog` command: a module for each group of commands, with tables, and JSON for scripts.

- `main`: the groups, and the exit codes of errors. `logs`, `ledgers`, `bookies`, `local`,
  `servers`, `doctor`, `demo`: the groups.
- `options`: options that several commands have. `output`, `drawing`: tables, JSON and pictures.
- `stop_signals`: ends commands on signals, and when the reader of their output ends.
"""
