"""An application whose classes check inputs."""

from __future__ import annotations

from tests.cli.incidents import JOBS

import queuert

client = queuert.connect("memory://", jobs=JOBS)
nothing = 1
