"""Bounds of what a bookie holds for its peers."""
