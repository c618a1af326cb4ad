"""Changes of a head that no producer makes.

- `head`: changes the head until it is as wanted. `truncate`, `retention`, `properties`, `orphans`:
  what is wanted. `expiry`: forgets versions that were replaced long ago.
"""
