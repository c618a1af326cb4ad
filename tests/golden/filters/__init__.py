"""Filters in the form for tasks of the JVM engine, with the rows that pass."""
