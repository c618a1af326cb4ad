"""Schedules of the shipped v2 transport, byte by byte, in virtual time.

One `V2Transport` asks bookies whose connections split, join, hold back, cut off and damage what
goes over them (`wire.py`, `bookie.py`). Each request is judged where it was made (`judge.py`):
answered once, with what its own answer said or with a fault that happened, within a bound.
"""
