"""Batch writes: the job on the driver, ranges in tasks, one commit."""
