"""Reads of a log's versions, of its newest view, and of its floor."""
