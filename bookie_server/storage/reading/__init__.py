"""Finds and reads stored entries, and makes the answers of reads."""
