"""The HTTP interface of a bookie: its metrics, its status, and the changes of administrators.

- `server`: a bounded HTTP server. `routes`: paths, methods and answers.
- `view`: the values that the routes show, and the changes that they request.
- `status.html`: the status page, which polls one of the routes.
"""
