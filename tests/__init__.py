"""The test suites. docs/TESTING.md lists the question that each suite answers."""
