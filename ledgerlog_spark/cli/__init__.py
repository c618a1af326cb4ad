"""The `ledgerlog` command: one module for each group of commands, tables, `--json` for scripts."""
