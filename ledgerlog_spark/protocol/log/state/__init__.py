"""The stored state of a log.

- `records`: the values. `rows`, `codec`, `bytes`: the values as bytes. `statistics`: bounds of
  columns.
- `pages`: divides a sequence between the head and pages. `walk`: reads the records that cover given
  keys.
"""
