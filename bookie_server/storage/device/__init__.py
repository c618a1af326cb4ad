"""The ports of storage on a real directory and under asyncio.

- `filesystem`: files, and what writes leave in the page cache.
- `runtime`: clock, tasks, and a thread that works in order.
"""
