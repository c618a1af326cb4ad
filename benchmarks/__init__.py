"""Benchmarks: one script for each question. A script prints figures and limits of the machine."""
