"""Finds ledgers that lack copies, and puts them in queues (AUTORECOVERY.md#auditor).

- `auditor`: `Auditor`, which marks the ledgers of lost bookies. `losses`: which bookies are lost,
  and when. `marking`: the walk over all records with its marks. `index`: which bookies the records
  name.
- `messages`: the events and effects.
"""
