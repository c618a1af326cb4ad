"""The replication protocol as pure machines: `handle(event) -> list[effect]`.

How it works. A ledger has one writer. `LedgerWriter` sends each run of entries to the Qw bookies of
its write set. The writer confirms runs in order, each run when Qa bookies have stored it. To
replace a failed bookie, the writer first writes a new ensemble to the metadata. Then it sends
entries to the replacement. After a writer has died, `LedgerRecovery` marks the metadata
IN_RECOVERY. The recovery fences so many bookies of the last ensemble that the writer can confirm
nothing more. The recovery reads forward from the largest LAC that it found, and writes the entries
back to an ack quorum. Then the recovery closes the ledger with one compare-and-swap. Several
recoveries may run at once, because this compare-and-swap makes them agree. `LedgerReader` reads
ranges and never fences. `LacReader` reads the last add confirmed. Numbered rules are in
docs/PROTOCOL.md.

- `ledger`: the machines of one ledger. `log`: the machines that read or change a log's state in the
  metadata store, with one pending request at a time. `leader`: the writer of a leader log.
- `dispatch`: tables of phases and events. `request_numbers`: one sequence of numbers for a machine
  and its parts.

A machine consists of smaller parts that do not depend on the machine: `AddPipeline` (the runs of
one ensemble), `MetadataUpdate` (one compare-and-swap loop), `RecoveryTail` (writes back the entries
after the LAC). A part returns its results. Each machine has a `phase`. A table below the class of
the machine maps a phase and an event type to the method that handles the event. If the table has no
such method, the event is our bug and fails an assertion.

The asyncio client and the simulator are hosts. Every host follows this contract:

1. Each request effect is answered by exactly one reply event: the answer, an error or the
   deadline, whichever is first. The host drops later answers to the same request.
2. A reply repeats the `request` number of its request. The number belongs to one send to one bookie
   at one index, so that an old answer never counts for a bookie that returned at another index.
3. The host performs the effects in their order, after `handle` returned. Replies pass through a
   queue on one thread, so `handle` is never called while it runs.
4. Machines never read time. Deadlines of requests belong to the host. A machine that needs to wait
   sends `StartTimer`. The host may make this wait longer by jitter, but not shorter.
5. Machines draw no random numbers. The host shuffles the candidates of `BookiesListed`.
6. Payloads are buffers that machines pass by reference. A payload never changes while its run is
   pending. The host builds headers and digests once for each run, and verifies them when it reads.
7. Machines iterate in defined order only. So the same events give the same effects in every
   process.
8. The machine holds the limits, and `can_add` shows whether they allow an add. If the host sends
   `AddRequested` when `can_add` is false, the caller has a bug (`LocalProtocolError`).
9. An `AssertionError` from a machine is our bug. The host then fails the handle with
   `InternalError`, treats all pending requests as unknown, and never calls that machine again. Some
   errors of the metadata store fit no reply, for example a refusal by its access list. Such an
   error also ends the handle, and the handle then fails with this error.

A machine ignores all events after its last indication, and the host may forget the machine. The
last indication is `LedgerClosed`, `RangeRead`, `ReadFailed`, `LacRead`, or `LedgerFailed` from a
recovery.
"""
