"""The client of the bookies' gRPC service.

- `transport`: the transport. `bookie`: the calls, streams and watches of one bookie.
- `channel`: opens and closes channels, and interprets failures of calls. `append_parts`: divides
  large appends into small requests.
"""
