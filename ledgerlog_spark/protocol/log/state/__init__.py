"""The stored state of a log.

- `records`: the classes of the values. `rows`, `codec`, `bytes`: encode and decode these values.
  `statistics`: encodes and decodes the smallest and largest values of columns.
- `pages`: divides a sequence between the head and pages. `walk`: reads the records that cover given
  keys.
"""
