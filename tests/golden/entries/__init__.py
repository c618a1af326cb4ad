"""Entries of a transactional log, and their rows, for the readers in Python and in the JVM."""
