"""Batch reads: planning on the driver, reading in tasks."""
