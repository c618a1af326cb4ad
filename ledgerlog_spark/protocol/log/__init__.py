"""A log as a list of ledger ranges in the metadata store (docs/LOGS.md).

- `machine`: the base of the machines. `messages`: their requests, and the replies.
- `transaction`: changes a head. Most changes are plans for this transaction.
- `state`: the stored state. `read`: reads versions. `commit`: commits of producers. `change`:
  changes without a producer. `sweep`: deletes ledgers and pages that no version lists.
- `properties`: the settings of a log. `password`: the password of its ledgers. `seal`: the last
  listed entry of each ledger.
"""
