"""What a bookie shows over HTTP on its metrics port, and the changes that administrators request.

- `server`: a bounded HTTP server. `routes`: paths, methods and answers.
- `view`: what the routes show of a bookie, and the changes that they request.
- `status.html`: the status page, which polls one of the routes.
"""
