"""Keeps a log small and checks it: sweeping, merging, retention, sealing."""
