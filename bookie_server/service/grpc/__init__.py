"""The control plane: the calls of `control.proto`.

- `limbo`: answers the calls about limbo.
- `server`: serves the port. `service`: answers the calls. `stream`: one stream of requests and
  replies. `replies`: replies that clients have not taken yet.
- `calls`: limits of calls. `stuck_calls`: ends calls whose peers do not take replies.
"""
