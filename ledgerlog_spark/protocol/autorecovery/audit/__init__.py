"""Finds ledgers that lack copies, and puts them in queues (AUTORECOVERY.md#auditor).

- `auditor`: `Auditor`, which marks the ledgers of lost bookies. `losses`: decides which bookies are
  lost, and when they are marked. `marking`: the walk over all records, which writes marks. `index`:
  stores the bookies that each record names.
- `check_machine`: the base of the checks, which walk over all ledgers. `replicas`: `ReplicaCheck`,
  which compares lists of entries (`stripes`). `digests`: `DigestCheck`, which reads all copies.
  `placements`: `PlacementCheck`. `unknown`: copies whose presence is unknown.
- `messages`: the events and effects.
"""
