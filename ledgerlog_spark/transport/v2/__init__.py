"""BookKeeper's binary protocol, version 2, over TCP.

- `transport`: the transport. `link`: one lane, which looks up a bookie, connects and reconnects.
- `connection`: one socket: sends frames and receives answers. `sockets`: connections within one
  machine, and writes of many pieces with back-pressure.
"""
