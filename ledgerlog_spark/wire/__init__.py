"""Filled in by its own layer."""
