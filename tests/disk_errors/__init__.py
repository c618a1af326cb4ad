"""`python -m tests.disk_errors`: each fault of tests/crash/errors.py at each disk operation."""
