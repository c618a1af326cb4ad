"""BookKeeper's binary protocol, version 2, over TCP.

- `transport`: the transport. `link`: the connection of one lane to one bookie.
- `connection`: sends frames and receives answers on one socket. `sockets`: connections within one
  machine, and writes of many pieces with back-pressure.
"""
