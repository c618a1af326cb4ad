"""The HTTP interface of a bookie, for its metrics, its status, and changes by administrators.

- `server`: a bounded HTTP server. `routes`: paths, methods and answers.
- `view`: the values that the routes show, and the changes that they request.
- `status.html`: the status page, which polls one of the routes.
"""
