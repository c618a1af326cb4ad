"""Logs for programs without an event loop, and for Spark's driver and workers."""
