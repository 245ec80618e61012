"""A simulated card, kernels on it, and the simulator's switches, as the tests of launches share them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from simulated import gfx1201

from graphrun.backends.gpu import GpuBackend
from sim.launches import STRICT, Simulator, code_object


@pytest.fixture(scope="module")
def gpu() -> Iterator[GpuBackend]:
    with gfx1201() as found:
        yield found


@pytest.fixture
def simulator(gpu: GpuBackend) -> Iterator[Simulator]:
    """With all checks that correct kernels pass in any order of their waves; tests may change that."""
    made = Simulator()
    yield made
    made.options(STRICT)


@pytest.fixture(scope="module")
def image() -> bytes:
    return code_object("launches")


@pytest.fixture(scope="module")
def module(gpu: GpuBackend, image: bytes) -> Any:
    return gpu.device.module(image)


@pytest.fixture(scope="module")
def bugs(gpu: GpuBackend) -> Any:
    return gpu.device.module(code_object("checks"))
