"""Reads of stored entries.

- `answers`: what a read is answered, and what its answer waits for.
- `reads`: finds and reads entries; `readings` drives that.
"""
