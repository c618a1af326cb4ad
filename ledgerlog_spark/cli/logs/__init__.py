"""`ledgerlog logs`: the commands for named logs.

- `commands`: list, show, read, draw. `changes`: set, history, restore, truncate, delete.
- `records`: create, append, tail. `maintenance`: sweep, merge. `check`: check. `lookup`: code that
  these commands share.
"""
