"""The client for programs without an event loop, and for Spark's workers."""
