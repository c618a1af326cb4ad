"""Hosts the machine of a leader log, and encodes what it appends."""
