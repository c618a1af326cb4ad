"""What is stored of a log.

- `records`: the values. `rows`, `codec`, `bytes`: their bytes. `statistics`: bounds of columns.
- `pages`: which part of a sequence is in the head, and which in pages. `walk`: reads the records
  that cover given keys.
"""
