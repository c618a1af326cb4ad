"""The shipped data plane of a bookie, with peers of all kinds, in virtual time.

Connections, lanes, receive memory, turns and the sweeper are those of the bookie. The simulated
parts are the clock of the loop, the sockets, the peers, and a storage that answers late and in any
order. The checks:

- Each request of a good peer gets one answer, with the right bytes, in bounded time. The bookie
  closes the connection of a good peer only while it is idle and its place is needed.
- The bookie closes the connection of a peer that makes no progress, sends no request, or sends
  invalid bytes, in bounded time.
- The bytes that the bookie holds for its peers, counted from outside, stay within their limit.
  Memory that storage got does not change before storage has answered.
- After all peers have left, no lane counts a byte, and no share waits in line.
- A stop answers all accepted requests.
"""
