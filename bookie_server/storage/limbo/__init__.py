"""Doubt and limbo: the behaviour of the storage after a possible loss (ADR 39).

- `denials`: answers "unknown" for ledgers in limbo, unless their metadata is newer than the loss.
- `record_checks`: reads the metadata of a ledger, with a time limit.
- `losses`: begins and ends epochs of doubt of the directory.
- `repaired`: stores repaired entries, and clears ledgers.
- `limbo_count`: counts the ledgers in limbo.
"""
