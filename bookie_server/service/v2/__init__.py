"""The data plane: connections of BookKeeper's protocol, version 2.

- `server`: listens, admits, drains. `connection`: frames in, answers out. `shared`: what
  connections share. `operations`: a frame's request to storage, its outcome as an answer.
  `requests`: a request's lane and refusal.
- `receive_memory`: the memory that a connection receives into. `connection_slots`: which
  connections are kept. `peer_watch`, `sweeper`: which ones are closed because their peers stall.
"""
