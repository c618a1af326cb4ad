"""Entries of leader logs, and searches for rows, for the readers in Python and in the JVM."""
