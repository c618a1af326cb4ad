"""The `ledgerlog` command: one module a group of commands, tables by rich, `--json` for scripts.

- `main`: the groups, and what an error becomes. `logs`, `ledgers`, `bookies`, `local`, `servers`,
  `upkeep`, `doctor`, `demo`: the groups.
- `cluster`, `passwords`, `confirm`: options that many commands have. `output`, `drawing`: what
  they print. `flights`: the rows of the demo.
- `stop_signals`, `closed_output`: how commands end.
"""
