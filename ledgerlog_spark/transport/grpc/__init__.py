"""The bookies' gRPC service, client side.

- `transport`: the transport. `bookie`: the calls, streams and watches of one bookie.
- `channel`: channels, and what their failures mean. `watch`: one watch of a ledger's LAC.
- `append_parts`: sends large appends in small requests.
"""
