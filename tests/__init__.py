"""The suites; docs/TESTING.md says which question each of them answers."""
