"""Makes one storage of several directories, each of which has a `LedgerStorage` of its own.

- `router`: the storage of the bookie, which passes each request to the directory of its ledger.
- `homes`: finds the directory of a ledger. `choice`: chooses the directory of a new ledger.
- `losses`: the doubt, which is the same in all directories.
- `opening`: opens all directories at the start.
- `joint_denials`: sends requests about an unknown ledger to all directories.
"""
