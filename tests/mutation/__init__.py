"""A list of plausible mistakes, and which suite notices each: `make mutation-score`."""
