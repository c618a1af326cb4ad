"""Changes of a head that drop rows or versions. They need no producer.

- `truncate`, `retention`: drop the oldest rows. `expiry`: deletes versions that were replaced long
  ago.
"""
