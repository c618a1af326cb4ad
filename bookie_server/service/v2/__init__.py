"""The data plane: connections of BookKeeper's protocol, version 2.

- `server`: accepts connections. `connection`: receives frames and sends answers. `shared`: the
  state of all connections. `operations`: turns frames into requests, and results into answers.
  `segments`: finds frames that are handled together. `together`: handles these frames.
  `receive_memory`: the memory into which a connection receives frames, and the lane of a frame.
- `peer_watch`, `sweeper`: close connections whose peers make no progress.
"""
