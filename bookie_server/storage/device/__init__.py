"""The ports of storage on a real directory and under asyncio.

- `filesystem`, `runtime`: files; clock and tasks. `thread`: a thread that works in order.
- `written_cache`: what writes leave in the page cache.
"""
