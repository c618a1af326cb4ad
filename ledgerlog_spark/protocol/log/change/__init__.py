"""Changes that drop rows or versions of a log. They need no producer.

- `truncate`, `retention`: drop the oldest rows. `expiry`: deletes versions that were replaced long
  ago.
"""
