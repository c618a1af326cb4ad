"""A log as a list of ledger ranges in the metadata store (docs/LOGS.md).

Each change is a transaction on the head of the log. An attempt of a transaction has these steps:

    Sync, ReadHead <──────────────────────────────────────────────────────────┐
     │  a commit also reads its producer record: LOGS.md#K2, LOGS.md#K3       │
     │  after a conflict, a commit reads only the head: LOGS.md#K14           │
    plan the change ── the head is already as required ──> Finished           │
     │                                                                        │
    ReadPages, if the plan needs pages ── a page is missing: LOGS.md#Q3 ──────┤
     │                                                                        │
    WritePages, if the plan has new pages ── CONFLICT, UNKNOWN ───────────────┤
     │                                                                        │
    WriteHead, if the versions are those that were read: LOGS.md#K5           │
     ├─ OK ──────────────────────────────────────────────> Finished           │
     ├─ CONFLICT: a version has changed, LOGS.md#K6 ──────────────────────────┤
     ├─ UNKNOWN, not a commit: the change is idempotent, LOGS.md#U1 ──────────┤
     └─ UNKNOWN, a commit: read both records again, LOGS.md#K7                │
         ├─ the token or the batch id is there ──────────> Finished           │
         ├─ the producer record is deleted: CommitUnknownError                │
         ├─ both versions are unchanged: send the same WriteHead again        │
         └─ otherwise the transaction cannot happen any more ─────────────────┘

Each new attempt has another token. The number of attempts is limited. If the store cannot be read
or refuses a request, the transaction ends with `Failed`.

- `machine`: the base class of the machines. `messages`: the machines' requests, and the replies.
- `transaction`: changes a head. Most changes are plans for this transaction.
- `state`: the stored state. `read`: reads versions. `commit`: commits of producers. `change`:
  changes without a producer. `sweep`: deletes ledgers and pages that no version lists.
- `properties`: the settings of a log. `password`: the password of the log's ledgers. `claim`: the
  token of the client that may seal the ledgers of a leader log. `seal`: reads the last listed entry
  of each ledger.
"""
