"""Does each positive answer follow the write of its entry and the sync of this write?

`make ack-audit` runs a real bookie under strace, gives it adds, runs and fences, and reads the
trace: SIGKILL keeps the page cache, so no kill test can show a missing sync. The audit itself is
tested: if the bookie does not call `fdatasync` (mutation `no_fsync`), the audit must fail.
"""
