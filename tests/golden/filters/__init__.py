"""Filters as tasks of the JVM engine get them, with the rows that pass."""
