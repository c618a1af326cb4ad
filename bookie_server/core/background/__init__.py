"""Decisions of background work on finished files, as functions without I/O.

- `compaction`: chooses the files to compact, and limits the speed. `scrub`: decides when files are
  checked for damage, and collects damaged entries.
"""
