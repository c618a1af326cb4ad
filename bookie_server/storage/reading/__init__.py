"""Reads of stored entries.

- `answers`: answers reads, after a fence or a wait for the journal if needed.
- `reads`: finds and reads entries. `readings`: runs the generators of `reads`.
- `recent`: keeps the newest bodies of the journal in memory.
- `stretches`: decides which reads of single entries that arrived together are one reading.
- `entry_spans`: decides which bytes of an entry a read of slices gets from the file, and splits the
  bytes of several entries.
"""
