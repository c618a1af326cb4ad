"""Bookies of a cluster under load lose records, and must become whole again (`make limbo-test`)."""
