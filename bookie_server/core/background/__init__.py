"""Decisions of background work on finished files, which do no I/O.

- `compaction`: chooses the files to compact, and limits the speed. `scrub`: passes over files that
  look for damage, and the damaged entries.
"""
