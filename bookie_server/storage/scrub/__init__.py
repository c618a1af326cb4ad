"""The scrub: reads the finished files from the device, and verifies records, indexes and counts.

- `scrubber`: runs passes over all files. `kept_position`: stores the position of a pass in a file.
- `file_check`: verifies one file. `device_reads`: reads a file from the device, not from the cache.
- `pointers`: the pointers of an index, in the order of their records.
- `live_recount`: counts the live bytes of a file again.
"""
