"""The `ledgerlog` command: one module a group of commands, tables by rich, `--json` for scripts.

- `main`: the groups, and what an error becomes. `logs`, `ledgers`, `bookies`, `local`, `servers`,
  `doctor`, `demo`: the groups.
- `options`: those that many commands have. `output`, `drawing`: tables, JSON and pictures.
- `stop_signals`, `closed_output`: how commands end.
"""
