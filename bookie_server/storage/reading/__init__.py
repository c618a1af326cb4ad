"""Reads of stored entries.

- `answers`: the answers to reads, and what they wait for.
- `reads`: finds and reads entries; `readings` drives that.
"""
