"""Long lists without faults, and simple models of the operations on them.

One log gets so many versions and ranges that each machine reads only a part of them. The result of
each change is compared with the rules of docs/LOGS.md for the whole list. Its cost is also checked:
each page is read once, steps are as large as allowed, and no work is due before the time that a
machine reported.
"""
