"""The `ledgerlog` command: one module for each group of commands, tables, `--json` for scripts.

- `main`: the groups, and the exit code of an error. `logs`, `ledgers`, `bookies`, `local`,
  `servers`, `doctor`, `demo`: the groups.
- `options`: options that several commands have. `output`, `drawing`: tables, JSON and pictures.
- `stop_signals`: the end of commands.
"""
