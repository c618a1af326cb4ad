"""Compaction: copies the live entries of files with many deleted entries, and frees the files.

- `compactor`: starts compactions. `cycle`: one compaction, from the choice of the files to the
  MANIFEST that lists the copies instead of these files (FORMATS.md#compaction).
- `copying`: copies one file. `live`: finds the live entries of a file. `draft`: the file of the
  copies.
- `pace`: limits the speed.
"""
