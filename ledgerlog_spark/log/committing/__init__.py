"""Writes ranges of rows, and what the tasks and the commit of one batch share."""
