"""BookKeeper's binary protocol, version 2, over TCP.

- `transport`: the transport. `link`: one lane to one bookie: look-up, connecting, back-off.
- `connection`: one socket: frames out, answers in. `writing`: many buffers at once, with
  back-pressure. `congestion`: connections that stay within one machine.
"""
