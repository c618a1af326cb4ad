"""BookKeeper's binary protocol, version 2, over TCP.

- `transport`: the transport. `link`: one lane to one bookie: look-up, connecting, back-off.
- `connection`: one socket: frames out, answers in. `sockets`: connections that stay within one
  machine, and writes of many pieces with back-pressure.
"""
