"""Benchmarks: one script for each question. It prints its figure and a limit of the machine."""
