"""BookKeeper's binary protocol, version 2, over TCP.

- `transport`: the transport. `link`: the connection of one lane to one bookie.
- `connection`: one socket: sends frames and receives answers. `sockets`: connections within one
  machine, and writes of many pieces with back-pressure.
"""
