"""One schedule of calls of the stores."""

from __future__ import annotations

from tests.sim.log.hosts.base import play_hosts
from tests.sim.log.stores import held, ledgers, logs, small
from tests.sim.log.stores.world import StoreProcess, StoreWorld


async def _run(seed: int) -> StoreWorld:
    world = StoreWorld(seed)
    with world.times_and_tokens():
        world.is_faulty = False
        first = StoreProcess(world, "first")
        await first.stores.initialize()
        await first.tree.create(small.QUEUE)
        await first.ledgers.new_ids()
        await first.stores.leases.acquire("upkeep", {})
        await first.stores.leases.release("upkeep")
        head, pages = logs.new_log(first, logs.NAMES[0])
        world.logs.append(head.log_id)
        await first.logs.create_log(head, pages)
        world.is_faulty = world.random.random() < 0.9
        counted = small.Counted()
        for place, what in enumerate(
            (
                *(logs.keep_logs, logs.keep_logs, logs.change_heads, logs.sweep_pages),
                *(logs.remove_logs, logs.remove_logs, logs.make_others),
                *(ledgers.produce, ledgers.produce, ledgers.lead, ledgers.lead),
                *(ledgers.end_registrations, ledgers.end_registrations),
                *(small.queue_up, small.queue_up, small.lease, small.lease),
            )
        ):
            process = StoreProcess(world, f"p{place}")
            process.spawn(what.__name__, what(process))
        for place in range(2):
            process = StoreProcess(world, f"counts-{place}")
            process.spawn("records", small.number(process, counted))
        await world.until_all_ended()
        for place in range(2):
            process = StoreProcess(world, f"upkeep-{place}")
            process.spawn("passes", held.hold(process))
        await world.until_all_ended()
        await small.look_at_clock(StoreProcess(world, "clock"))
        counted.check(world)
        if world.failure is not None:
            raise world.failure
    return world


def store_schedule(seed: int) -> StoreWorld:
    """Run one random schedule to its end, or raise `Violation`."""
    world: StoreWorld = play_hosts(seed, _run)
    return world
