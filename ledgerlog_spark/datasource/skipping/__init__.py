"""Finds the parts of a log that a query needs, from statistics of ranges and entries.

- `facts`: the class `Facts`, the possible values of a column in some rows, computed from
  statistics. `predicates`: whether one of these rows may pass a filter, by the `Facts` of the
  columns.
- `row_runs`: ranges or entries with their statistics, and the `Facts` about their columns.
- `needs`: which ranges and entries a query needs, by its filters, or by its order and limit
  (`top`). `spans` groups the needed entries into pieces.
- `row_filters`: the filters of a query as the tasks of the JVM engine apply them to rows.
- `aggregates`: counts, smallest and largest values, if the statistics contain the exact values.
"""
