"""Copies the entries of a ledger to bookies, then names these bookies in the metadata.

A worker runs one `LedgerReplication` for each ledger that it takes from a queue
(AUTORECOVERY.md#X1). The job consists of passes. Each pass loads the metadata record after a sync,
lists the entries that the members of the ledger have, and decides again which copies are missing.
So conflicts and changes of bookies need no special code, because the next pass considers them.

    LoadTask, TakeLock
     │
    LoadMetadata, ListRegistered, ListEntries of each member <────────────────────┐
     ├─ everything is whole ───> DeleteTask at the version of LoadTask            │
     ├─ a registered member lacks entries: ReadCopies, AddCopies, ForceEntries ───┤
     ├─ a member is lost: ReadIdentities, ListEntries of the target, ReadCopies,  │
     │  AddCopies, ForceEntries, ListEntries, CasMetadata ────────────────────────┤
     └─ the open last fragment names a lost bookie: StartTimer, RecoverForCopies ─┘

- `job`: the machine. `copying`: reads and adds copies. `needs`: finds missing copies by the lists.
- `messages`: effects and replies. `targets`: chooses the bookie that gets a copy. `ranges`: runs of
  entry ids.
- `unreadable`: reports of entries without a copy.
- `pace`: the byte rate of a worker. `schedule`: chooses the next ledger, and the pauses after
  failures.
"""
