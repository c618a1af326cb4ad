"""Implements the ports of storage for a real directory and asyncio.

- `filesystem`: files. `transfers`: whole reads and writes. `directories`: syncs directories.
  `os_errors`: errors of the system. `written_cache`: a limit for written bytes in the page cache.
- `mapped_number`: a number in shared memory, which survives a SIGKILL.
- `runtime`: clock, tasks, and a thread that runs calls in order.
"""
