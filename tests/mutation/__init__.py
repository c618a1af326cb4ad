"""A list of plausible mistakes, and the suites that detect each mistake: `make mutation-score`."""
