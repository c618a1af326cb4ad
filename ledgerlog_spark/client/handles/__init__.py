"""Handles of ledgers that are written, read and followed."""
