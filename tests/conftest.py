"""What all tests share."""

from __future__ import annotations

from tests.support.places import use_shared_memory

use_shared_memory()
