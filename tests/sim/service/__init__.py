"""A bookie's data plane as it ships, with peers of all kinds, in virtual time.

Connections, lanes, receive memory, turns and the sweeper are the bookie's own. What is simulated
is the loop's clock, the sockets, the peers, and a storage that answers late and in any order.

- Every request of a peer that behaves is answered, once, with the right bytes, in bounded time, and
  its connection is closed by nobody but itself, or while it is idle and its place is needed.
- Who does not move, begins nothing or sends nonsense is closed in bounded time.
- What the bookie holds for its peers, counted from outside, stays within its bound, and memory that
  storage was given does not change before storage is done with it.
- When everybody is gone no lane counts a byte, and nobody waits in line.
- A stop answers everything that it accepted.
"""
