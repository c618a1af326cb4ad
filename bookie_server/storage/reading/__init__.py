"""Reads of stored entries.

- `answers`: answers reads, after a fence or a wait for the journal if needed.
- `reads`: finds and reads entries. `readings`: runs the generators of `reads`.
- `entry_spans`: decides which bytes of an entry a read of slices gets from the file.
"""
