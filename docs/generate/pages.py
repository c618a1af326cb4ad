"""The list of the generated pages, and of the functions that generate them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docs.generate import (
    api,
    commands,
    constants,
    errors,
    metrics,
    modules,
    options,
    rules,
    settings,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PAGES: dict[str, Callable[[], str]] = {
    "reference/cli.md": commands.page,
    "reference/client-settings.md": settings.client_page,
    "reference/constants.md": constants.page,
    "reference/errors.md": errors.page,
    "reference/metrics.md": metrics.page,
    "reference/modules.md": modules.page,
    "reference/options.md": options.page,
    "reference/python.md": api.page,
    "reference/rules.md": rules.page,
    "reference/settings.md": settings.bookie_page,
}
"""Path of each generated page below docs/, and the function that returns the text of this page."""
