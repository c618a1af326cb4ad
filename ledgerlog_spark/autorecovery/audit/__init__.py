"""The auditor's host, which performs the effects of the machines of `protocol/autorecovery/audit`.

- `service`: `AuditService`, which takes part in the election, and takes the lease of the checks.
- `machine_host`: runs one machine. `store_requests`: the machine's requests to the metadata store.
  `copy_requests`: the machine's requests to bookies.
"""
