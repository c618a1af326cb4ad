"""Benchmarks: one script a question, each printing its figure beside a limit of the machine."""
