"""A log as a list of ledger ranges in the metadata store (docs/LOGS.md).

- `machine`, `messages`: one request at a time; what is asked and answered.
- `transaction`: the one way to change a head, for which every change is a plan.
- `state`: what is stored. `read`: reads versions. `commit`: commits of producers. `change`:
  changes that no producer makes. `sweep`: deletes what no version lists.
- `properties`, `password`, `seal`: settings of a log, its password, the floor of its ledgers.
"""
