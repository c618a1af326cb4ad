"""The stores of auto-recovery, which the auditor, the workers and the commands share.

- `ports`: what the stores promise, without paths.
"""
