"""The `ledgerlog` command. Its output is tables for people, or JSON for scripts.

- `main`: the command line, and the exit codes of errors. `logs`, `ledgers`, `bookies`, `placement`,
  `vacations`, `local`, `servers`, `bookie_files`, `bookie_inspect`, `bookie_versions`,
  `bookie_cookies`, `bookie_limbo`, `doctor`, `demo`: one module or package for each group of
  commands. `dumped_entries`: the forms in which `bookie dump` writes entries.
- `options`: options that several commands share. `output`, `drawing`: tables, JSON and pictures.
- `stop_signals`: stops a command after a signal, or when the program that reads its output has
  ended.
"""
