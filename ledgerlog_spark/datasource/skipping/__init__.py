"""Finds the parts of a log that a query needs, from statistics of ranges and entries.

- `facts`: the class `Facts`, the possible values of a column in some rows, computed from
  statistics. `predicates`: decides from the `Facts` of the columns whether one of these rows may
  pass a filter.
- `row_runs`: ranges or entries with their statistics, and the `Facts` about the columns in them.
- `needs`: finds the ranges and entries that a query needs, from its filters, or from its order and
  limit (`top`). `spans` groups the needed entries into pieces.
- `row_filters`: the filters of a query in the form in which tasks of the JVM engine apply them.
- `aggregates`: computes counts, smallest and largest values, if the statistics contain the exact
  values.
"""
