"""Changing a log's properties after its creation (LOGS.md#G7, LOGS.md#U9)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.protocol.log.change.head import HeadChanger
from ledgerlog_spark.protocol.log.properties import changed_properties, user_properties

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledgerlog_spark.protocol.log.messages import LogEffects
    from ledgerlog_spark.protocol.log.state.pages import Loaded, PageRequest
    from ledgerlog_spark.protocol.log.state.records import LogHead
    from ledgerlog_spark.protocol.log.state.walk import Walk


@dataclass(frozen=True, slots=True)
class PropertiesChange:
    """The head with other properties, and everything else as it is."""

    head: LogHead
    properties: Mapping[str, str]

    def pages_to_merge(self) -> tuple[PageRequest, ...]:
        """None."""
        return ()

    def build(self, token: str, loaded: Loaded) -> tuple[LogHead, tuple[bytes, ...]]:
        """The new head; no pages."""
        del loaded
        return replace(self.head, token=token, properties=self.properties), ()


class PropertiesMachine(HeadChanger[dict[str, str]]):
    """Ends with `Finished(dict)`: all properties that are set now; makes no version.

    Or `Failed` with `ConfigurationError`, `LogNotFoundError`, `ConcurrentCommitError`, or the
    store's errors.
    """

    __slots__ = ("_changes",)

    def __init__(self, log: str, changes: Mapping[str, str | None], *, token: str) -> None:
        """Machine of one change.

        Args:
            log: Name, for messages.
            changes: By option name in any case; None brings back the default.
            token: 32 random hexadecimal digits.
        """
        super().__init__(log, token=token)
        self._changes = changes

    def _walks(self, head: LogHead) -> list[Walk[Any]]:
        del head
        return []

    def _done(self, head: LogHead, walked: list[Walk[Any]]) -> LogEffects[dict[str, str]]:
        del walked
        properties = changed_properties(head.properties, self._changes)
        if properties == head.properties:
            return self._finish(user_properties(properties))
        return self._replace_head(PropertiesChange(head, properties))

    def _changed(self, head: LogHead) -> dict[str, str]:
        return user_properties(head.properties)
