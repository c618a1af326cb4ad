"""The auditor's host: it performs the effects of the machines of `protocol/autorecovery/audit`.

- `service`: `AuditService`, which takes part in the election, and takes the lease of the checks.
- `machine_host`: runs one machine. `store_requests`: its requests to the metadata store.
  `copy_requests`: its requests to bookies.
"""
