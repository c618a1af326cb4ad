"""The replication protocol as pure machines: `handle(event) -> list[effect]`.

Theory of operation. A ledger has one writer. `LedgerWriter` sends each run of entries to the Qw
members of its write set. It confirms runs in order once Qa members answered. It replaces a failed
bookie by writing a new ensemble to the metadata before it sends anything to the replacement. After
a writer has died, `LedgerRecovery` marks the metadata IN_RECOVERY. It fences a covering part of the
last ensemble, so that the writer can confirm nothing more. It reads forward from the largest LAC
that it found, writes the entries back to an ack quorum and closes the ledger with one
compare-and-swap. Several recoveries may run at once; the closing compare-and-swap makes them agree.
`LedgerReader` reads ranges and never fences; `LacRead` reads the last add confirmed from a quorum.
Numbered rules are in docs/PROTOCOL.md.

- `ledger`: the machines of one ledger. `log`: a log's state in the metadata store; each machine has
    one pending request at a time. `leader`: the one process that appends to a leader log.
- `dispatch`: tables of phase and event. `request_numbers`: one
  sequence of numbers for a machine and its parts.

A machine is composed of smaller ones that do not depend on their owner: `AddPipeline` (runs against
one ensemble), `MetadataUpdate` (one compare-and-swap loop), `RecoveryTail` (writes back the entries
after the LAC). Results are return values. Each machine has a `phase`, and below its class a table
from (phase, event type) to the method that handles the pair. A pair that is not in the table is our
bug and fails an assertion.

The contract of a host, the asyncio client and the simulator alike:

1. Each request effect is answered by exactly one reply event: the answer, an error or the
   deadline, whichever is first. Later answers to it are dropped by the host.
2. A reply repeats the `request` number of its request. The number belongs to one send to one bookie
   at one index, so that an old answer never counts for a bookie that returned at another index.
3. Effects are performed after `handle` returned, in their order, and replies pass through a queue
    on one thread: `handle` is never entered twice.
4. Machines never read time. Deadlines of requests belong to the host. A machine that needs to wait
   sends `StartTimer`; the host may add jitter but not shorten it.
5. Machines draw no random numbers. The host shuffles the candidates of `BookiesListed`.
6. Payloads are opaque buffers, passed by reference and never changed while a run is pending. The
   host builds headers and digests from the run, once, and verifies them when it reads.
7. Machines iterate in defined order only, so that one history of events gives one history of
   effects in every process.
8. Limits live in the machine and show as `can_add`; `AddRequested` beyond it, before the writer is
   open or after it stopped is the caller's bug (`LocalProtocolError`).
9. An `AssertionError` from a machine is our bug: the host fails the handle with `InternalError`,
   treats everything pending as unknown, and never calls that machine again. An error of the
   metadata store that no reply can express, such as a refusal by its access list, ends the handle
   likewise, with that error.

After its last indication (`LedgerClosed`, `RangeRead`, `ReadFailed`, `LacRead`, or `LedgerFailed`
from a recovery) a machine ignores all further events; the host may forget it.
"""
