"""Long lists without a fault, and plain models of what is done with them.

One log gets so many versions and ranges that each machine reads a part of them only. What a change
leaves is compared with what docs/LOGS.md says of the whole list, and so is what it costs: pages are
read once, steps are as large as they may be, and nothing is due before a machine says that it is.
"""
