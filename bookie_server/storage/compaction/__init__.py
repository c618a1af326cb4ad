"""Compaction: copies the live entries of files that are mostly deleted, and frees the files.

`compactor` chooses the files and switches to the copies, `copying` copies one file, `live` finds
its live entries, and `draft` writes the file of the copies (FORMATS.md#compaction).
"""
