"""A tree of nodes in memory, with the failures of a real ensemble at will."""
