"""What the launcher of one node hears from those of the job's other nodes, and tells them."""

from __future__ import annotations

from typing import Protocol


class Elsewhere(Protocol):
    """The launchers of the job's other nodes."""

    def news(self) -> str | None:
        """Return why the ranks here should end."""

    def hung(self) -> int | None:
        """Return in which start of the ranks another node has found the newest hang."""

    def tell_hang(self, restart: int) -> None:
        """Say that ranks hang here, so that every node looks at what its own are doing."""
