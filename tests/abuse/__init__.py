"""Many kinds of misbehaving peers against real bookies, while one client behaves well.

- `abuses`: the actions of bad peers. `peers`: how they connect. They run in a process of their own.
- `client`: appends and reads like a real client, and records the duration of each call.
- `__main__`: starts a cluster, plays one abuse after the other, measures the bookies' memory.
"""
