"""Keeps the logs of a cluster small and old rows away; imports pyarrow only when it merges."""
