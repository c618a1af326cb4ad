"""Implements the ports of storage for a real directory and asyncio.

- `filesystem`: files, and a limit of the page cache that writes use.
- `runtime`: clock, tasks, and a thread that runs calls in order.
"""
