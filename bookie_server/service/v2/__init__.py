"""The data plane: connections of BookKeeper's protocol, version 2.

- `server`: listens, admits, drains. `connection`: receives frames, sends answers. `shared`: state
  shared by connections. `operations`: turns frames into requests, and outcomes into answers.
  `requests`: a frame's lane. `receive_memory`: the memory that a connection receives into.
- `peer_watch`, `sweeper`: close connections whose peers stall.
"""
