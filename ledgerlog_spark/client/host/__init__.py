"""The asyncio host of the protocol's machines: effects become calls, answers become events."""
