"""Real bookies that lose entries while writers, readers and recoverers work, and repair themselves.

- `loads`: the writers, readers and recoverers. `losses`: the kinds of losses.
- `__main__`: runs all losses, and checks each copy at the end.
"""
