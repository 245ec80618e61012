"""Fixtures of the model tests."""

from __future__ import annotations

import pytest
from hybrid import Files


@pytest.fixture
def files(request: pytest.FixtureRequest) -> Files:
    return Files(request)
