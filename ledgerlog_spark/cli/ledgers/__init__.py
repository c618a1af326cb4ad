"""`ledgerlog ledgers`: the commands for single ledgers, independently of logs.

- `commands`: list, show, read, seal, delete. `copies`: the option `--replicas` of show.
- `check`: check. `records`: export, import. `losses`: accept-loss.
"""
