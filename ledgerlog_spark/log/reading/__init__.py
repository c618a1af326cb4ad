"""Reads listed ranges, records and rows, and follows the end of a log."""
