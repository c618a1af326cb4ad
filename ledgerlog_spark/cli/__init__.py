"""The `ledgerlog` command: one module a group of commands, tables by rich, `--json` for scripts."""
