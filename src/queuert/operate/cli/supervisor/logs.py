"""Log lines on stderr, unless the application has set up its own."""

from __future__ import annotations

import logging

FORMAT = "%(asctime)s %(levelname)-7s %(process)d %(name)s: %(message)s"


def set_up_logging(level: str) -> None:
    """Does nothing if the root logger has a handler already."""
    logging.basicConfig(level=level, format=FORMAT)
