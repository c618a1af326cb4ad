"""Appends that wait to be sent: their batches, and when these are sent."""
