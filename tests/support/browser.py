"""The browser of this machine, if it has one: `.ci/run` installs it."""

from __future__ import annotations

import os
import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome-headless-shell")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # A name that is not localhost: pages there are not a "secure context", as over plain HTTP.
    "--host-resolver-rules=MAP jobs.test 127.0.0.1",
)
MISSING = "Chromium is missing: tools/install_browser, or QUEUERT_BROWSER=its path"


def find_browser() -> str | None:
    """The path of a Chromium."""
    given = os.environ.get("QUEUERT_BROWSER")
    return given or next((found for name in NAMES if (found := shutil.which(name)) is not None), None)
