"""What `with` closes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType


class Closing(ABC):
    """Something that `with` closes at its end, whether the block failed or not."""

    @abstractmethod
    def close(self) -> Any:
        """Let go of it; errors are those of the class."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
