"""The control plane: the calls of `control.proto`.

- `server`: owns the port. `service`: answers the calls. `stream`: one stream of requests and
  replies. `parts`: appends that come in parts. `replies`: replies that clients have not taken yet.
  `turns`: turns of the event loop for large replies.
- `calls`, `fair_slots`: bounds of calls. `stuck_calls`, `peer_sockets`: calls that are closed
  because their peers stall.
"""
