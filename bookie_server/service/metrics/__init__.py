"""Counters of a bookie's service, and the HTTP server that shows them."""
