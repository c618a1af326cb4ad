"""Schedules of the shipped v2 transport, byte by byte, in virtual time.

One `V2Transport` sends requests to bookies. Their connections split, join, delay, cut and damage
the bytes (`wire.py`, `bookie.py`). `judge.py` checks each request: it must get one result in
bounded time, which is its own answer or a fault that happened.
"""
