"""The client of the bookies' gRPC service.

- `transport`: the transport. `bookie`: the calls, streams and watches of one bookie.
- `channel`: channels, and the outcome of their calls. `append_parts`: sends large appends in small
  requests.
"""
