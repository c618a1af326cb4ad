"""Finds ledgers that lack copies, and puts them in queues (AUTORECOVERY.md#auditor).

- `auditor`: `Auditor`, which marks the ledgers of lost bookies. `losses`: which bookies are lost,
  and when. `marking`: the walk over all records with its marks. `index`: which bookies the records
  name.
- `check_machine`: the base of the checks, which walk over all ledgers. `replicas`: `ReplicaCheck`,
  which compares lists of entries (`stripes`). `digests`: `DigestCheck`, which reads all copies.
  `placements`: `PlacementCheck`. `unknown`: copies of which it is unknown whether they are there.
- `messages`: the events and effects.
"""
