"""Changes of a head that drop rows or versions, made without a producer.

- `truncate`, `retention`: drop the oldest rows. `expiry`: deletes versions that were replaced long
  ago.
"""
