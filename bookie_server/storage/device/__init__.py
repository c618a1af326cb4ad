"""The ports of storage on a real directory and under asyncio.

- `filesystem`: files, and a bound on the page cache used by writes.
- `runtime`: clock, tasks, and a thread that works in order.
"""
