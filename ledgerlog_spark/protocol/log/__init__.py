"""A log as a list of ledger ranges in the metadata store (docs/LOGS.md).

- `machine`, `messages`: one request at a time; requests and replies.
- `transaction`: the only way to change a head; every change is a plan for it.
- `state`: the stored state. `read`: reads versions. `commit`: commits of producers. `change`:
  changes without a producer. `sweep`: deletes ledgers and pages that no version lists.
- `properties`, `password`, `seal`: settings of a log, its password, the floor of its ledgers.
"""
