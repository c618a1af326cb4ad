"""The ports of storage on a real directory, a real clock and real threads."""
