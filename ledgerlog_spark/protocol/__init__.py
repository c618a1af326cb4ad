"""The replication protocol as pure machines: `handle(event) -> list[effect]`.

How it works. A ledger has one writer. `LedgerWriter` sends each run of entries to the Qw bookies of
its write set. The writer confirms the runs in order. A run can be confirmed when Qa bookies have
stored it. To replace a failed bookie, the writer first writes a new ensemble to the metadata. Then
it sends entries to the replacement. After a writer has died, `LedgerRecovery` marks the metadata
IN_RECOVERY. The recovery fences bookies of the last ensemble until the writer can no longer confirm
another entry. The recovery reads forward from the largest LAC that it found, and writes the entries
back to an ack quorum. Then the recovery closes the ledger with one compare-and-swap. Several
recoveries may run at once, because this compare-and-swap makes them agree on the end of the ledger.
`LedgerReader` reads ranges and never fences. `LacReader` reads the last add confirmed.
docs/PROTOCOL.md lists the numbered rules.

- `ledger`: the machines of one ledger. `log`: the machines that read or change a log's state in the
  metadata store, with one pending request at a time. `leader`: the writer of a leader log.
  `placement`: chooses the bookies of an ensemble. `autorecovery`: maintains the number of copies.
- `dispatch`: tables that map a phase and an event to a method. `request_numbers`: one sequence of
  numbers for a machine and its parts.

A machine consists of smaller parts that do not depend on the machine: `AddPipeline` (the runs of
one ensemble), `MetadataUpdate` (one compare-and-swap loop), `RecoveryTail` (writes back the entries
after the LAC). A part returns its results to its machine. Each machine has a `phase`. A table below
the class of the machine maps a phase and an event type to the method that handles the event. If an
event arrives that the row of the phase does not contain, ledgerlog has a bug, and an assertion
fails.

The asyncio client and the simulator are hosts. Every host follows this contract:

1. The host answers each request effect with exactly one reply event: the answer, an error, or the
   end of the deadline, whichever is first. The host drops later answers to the same request.
2. A reply repeats the `request` number of its request. Each request that is sent to one bookie at
   one index of the ensemble has its own number. So if a bookie has left the ensemble and returned
   at another index, an old answer is never taken for an answer to a new request.
3. The host performs the effects in their order, after `handle` has returned. Replies pass through a
   queue on one thread, so two calls of `handle` never overlap.
4. Machines never read time. The host keeps the deadlines of requests. A machine that needs to wait
   sends `StartTimer`. The host may add jitter to this wait, but must not shorten it.
5. Machines use no random numbers. The host shuffles the candidates in `BookiesListed`.
6. Payloads are buffers that machines pass by reference. A payload never changes while its run is
   pending. The host builds headers and digests once for each run, and verifies them when it reads
   entries.
7. Machines iterate over collections only in a defined order. So the same events give the same
   effects in every process.
8. The machine has limits for adds, and `can_add` shows whether these limits allow another add. If
   the host sends `AddRequested` when `can_add` is false, the machine raises `LocalProtocolError`,
   because the caller has a bug.
9. An `AssertionError` from a machine shows a bug of ledgerlog. The host then fails the handle with
   `InternalError`, treats the outcome of each pending request as unknown, and never calls that
   machine again. Some errors of the metadata store have no matching reply event, for example a
   refusal by its access list. The handle then fails with the error of the store.

A machine ignores all replies after its last indication, so the host may drop the machine. The last
indication is `LedgerClosed`, `RangeRead`, `ReadFailed` or `LacRead`. `LedgerFailed` is the last
indication of a recovery and of a LAC read.
"""
