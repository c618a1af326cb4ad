"""The parts of a log that a query needs, found by statistics of ranges and entries, not by rows.

- `facts`: what statistics show about the values of a column. `predicates`: filters on these facts.
- `row_runs`: ranges or entries with their statistics, and the facts of their columns.
- `needs`: which ranges and entries a query needs, by its filters, or by its order and limit
  (`top`). `spans` joins entries to pieces.
- `aggregates`: counts, smallest and largest values, if the statistics contain the exact values.
"""
