"""Reads of stored entries.

- `answers`: answers reads. If necessary, it first sets a fence or waits for the journal.
- `reads`: finds and reads entries. `readings`: runs the generators of `reads`.
- `recent`: keeps the newest bodies of the journal in memory.
- `stretches`: combines reads of single entries that arrived together.
- `entry_spans`: decides which bytes of an entry a request for slices reads from the file, and
  splits bytes into entries.
"""
