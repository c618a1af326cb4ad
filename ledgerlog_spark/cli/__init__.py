"""The `ledgerlog` command. It prints tables for people, or JSON for scripts.

- `main`: the command line, and the exit codes of errors. `cluster`, `logs`, `ledgers`, `bookies`,
  `placement`, `vacations`, `bookie`, `autorecovery`, `local`, `servers`, `probes`, `doctor`,
  `demo`: a module or package for each group of commands.
- `control_service`: calls of the control service of bookies. `options`: options that several
  commands share. `output`, `drawing`: tables, JSON and pictures.
- `stop_signals`: stops a command after a signal, or when the program that reads the command's
  output has ended.
"""
