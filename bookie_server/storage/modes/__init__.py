"""The write modes: how a group of records is written, synced, and found again after a crash.

- `writers`: one writer of groups for each write mode.
- `checkpoints`: syncs entry-log files that were written without a sync.
- `ring`: the journal files of one run.
- `redo`: at the start, writes the groups of the journal files into the entry-log files again.
- `recorded_run`: lists a run without syncs in the MANIFEST while the run has unsynced records.
- `setup`: makes the writer of a new run, and takes over the records of the last run.
"""
