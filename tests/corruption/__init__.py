"""Damages each byte of a small directory of a bookie, and reads everything that it stored.

- `scenarios`: the directories, and the acknowledged state in them.
- `damage`: the cases: each byte of each file, in several ways.
- `judge`: starts a bookie with a damaged directory, sends requests, and judges the answers.
- `cookies`: the same for the cookie file.
"""
