"""`ledgerlog bookie`: the commands for one bookie, its files, its cookies and its limbo.

- `files`: check, dump, rebuild-index, format. `inspect`: inspect. `versions`: upgrade, downgrade.
  `dumped_entries`: the forms in which `bookie dump` writes entries.
- `cookies`: cookie. `limbo`: limbo. `cli/servers.py` has `bookie run`.
"""
