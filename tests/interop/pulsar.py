"""A broker of Apache Pulsar on our bookies: it dies, and the next one recovers its ledgers."""

from __future__ import annotations

import hashlib
from functools import partial

from tests.interop.dying_writers import ENDLESS
from tests.interop.payload import Source
from tests.interop.stage import WHOLE, Scenario, Stage, expect

PULSAR = "pulsar"
MESSAGES_BEFORE = 2_500
MESSAGES_MEANWHILE = 2_500
MESSAGES_AFTER = 1_500


def pulsar() -> list[Scenario]:
    """A broker dies; in other scenarios a bookie dies too, or loses its newest records."""
    return [
        Scenario(f"{PULSAR} dies, {what}", f"{WHOLE} CRC32C", partial(_dies, harm=harm))
        for what, harm in (
            ("the next broker recovers", None),
            ("a bookie is in limbo, the next broker recovers", "limbo"),
            ("a bookie is dead, the next broker recovers", "death"),
        )
    ]


def _dies(stage: Stage, harm: str | None) -> None:
    bookies = stage.our_bookies
    topic, source = f"persistent://public/default/topic-{stage.number}", Source(stage.number)
    stage.clients.forget()  # each scenario has its own brokers, which count its messages
    broker = stage.clients.staying(PULSAR)
    broker.ask("produce", topic, stage.number, 0, MESSAGES_BEFORE)
    copies = {bookie_id: bookies.copy(bookie_id) for bookie_id in bookies.ids} if harm else {}
    broker.begin("produce", topic, stage.number, MESSAGES_BEFORE, ENDLESS)
    broker.wait_for(MESSAGES_BEFORE + MESSAGES_MEANWHILE)
    broker.kill()
    stage.tally.in_doubt += broker.sent - broker.acknowledged - 1
    victim = bookies.ids[stage.number % len(bookies.ids)]
    if harm == "limbo":
        epoch = bookies.doubt_epoch(victim)
        bookies.restore(victim, copies[victim])
        expect(bookies.doubt_epoch(victim), epoch + 1, f"epoch of doubt of {victim}")
    elif harm == "death":
        bookies.kill(victim)
    try:
        known = _consume(stage, topic, source, broker.acknowledged + 1, broker.sent)
        after = known + MESSAGES_AFTER
        stage.clients.staying(PULSAR).ask("produce", topic, stage.number, known, MESSAGES_AFTER)
        expect(_consume(stage, topic, source, after, after), after, "messages in the topic")
    finally:
        if harm == "death":
            bookies.start(victim)


def _consume(stage: Stage, topic: str, source: Source, count: int, sent: int) -> int:
    """Read and compare the whole topic, which has at least `count` messages; return its length."""
    _, got = stage.clients.staying(PULSAR).collect("consume", topic, count)
    stage.tally.entries += len(got)
    stage.tally.lost += len(set(range(count)) - {message.entry_id for message in got})
    for place, message in enumerate(got):
        expect(message.entry_id, place, "number of a message of the topic")
        digest = hashlib.sha256(source.payload(place)).hexdigest()
        stage.tally.changed += message.digest != digest
        stage.tally.invented += place >= sent
    return len(got)
