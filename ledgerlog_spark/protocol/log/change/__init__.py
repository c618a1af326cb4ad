"""Changes of a head that drop rows or versions, which no producer makes.

- `truncate`, `retention`: drop the oldest rows. `expiry`: forgets versions that were replaced long
  ago.
"""
