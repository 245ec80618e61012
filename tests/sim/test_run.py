"""Launches on the simulator, through the package hip-python as on a card: kernels, scheduling, and what it reports."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np
import pytest
from arguments import arguments
from gpu_bench import GpuBench
from kernel_cases import KERNELS, check, fitting

from graphrun.backends.device import Memory
from graphrun.backends.gpu import GpuBackend
from graphrun.core.errors import BackendError
from sim.launches import (
    COUNT,
    GROUPS,
    RANDOM_ORDER,
    STRICT,
    THREADS,
    WEAK,
    Simulator,
    launch,
    launch_together,
    read,
)


@pytest.mark.parametrize("name", [n for n in KERNELS if n.startswith(("rms_norm-", "quantize-", "gemv-gemv_q4_0"))])
@pytest.mark.parametrize("options", [STRICT, STRICT | RANDOM_ORDER, STRICT | RANDOM_ORDER | WEAK])
def test_kernels_have_the_bits_of_numpy(name: str, options: int, gpu: GpuBackend, simulator: Simulator) -> None:
    op, kernel = KERNELS[name]
    for seed, case in enumerate(fitting(op, kernel)):
        simulator.options(options, seed)
        given = arguments(op, case, seed=seed)
        bench = GpuBench(op, kernel.name, given)
        bench.run_on(gpu.device, gpu.kernels, kernel)
        check(op, bench, given, case)


def test_device(gpu: GpuBackend) -> None:
    hip = gpu.device.hip  # type: ignore[attr-defined]
    attributes = hip.hipDeviceAttribute_t
    assert gpu.device.description == "simulated gfx1201 (gfx1201)"
    properties = hip.hipGetDeviceProperties(0)[1]
    assert (properties.totalGlobalMem, properties.multiProcessorCount, properties.warpSize) == (32 << 30, 32, 32)
    assert (properties.cooperativeLaunch, properties.l2CacheSize, properties.maxSharedMemoryPerMultiProcessor) == (
        1,
        8 << 20,
        1 << 17,
    )
    for name, wanted in (("MultiprocessorCount", 32), ("WarpSize", 32), ("CooperativeLaunch", 1)):
        assert hip.hipDeviceGetAttribute(getattr(attributes, f"hipDeviceAttribute{name}"), 0)[1] == wanted


def test_memory_is_counted_and_poisoned(gpu: GpuBackend, simulator: Simulator) -> None:
    hip = gpu.device.hip  # type: ignore[attr-defined]
    before = int(hip.hipMemGetInfo()[1])
    memory = Memory(gpu.device, 1000)
    assert int(hip.hipMemGetInfo()[1]) == before - 1000
    assert (memory.read(0, 1000) == 0xFF).all()
    with pytest.raises(BackendError, match="invalid argument"):
        memory.read(900, 101)
    with pytest.raises(BackendError, match="do not fit"):
        gpu.device.allocate(33 << 30)
    del memory
    assert int(hip.hipMemGetInfo()[1]) == before


def test_workgroups_and_threads(gpu: GpuBackend, module: Any, simulator: Simulator) -> None:
    out = Memory(gpu.device, 3 * THREADS * 4)
    launch(gpu, module, "number", 3, 0, out.address, 7)
    assert read(out).tolist() == [7 + group * 1000 + thread for group in range(3) for thread in range(THREADS)]


@pytest.mark.parametrize(("name", "value"), [("where", 1000), ("where_second", 2000)])
def test_relocations(name: str, value: int, gpu: GpuBackend, module: Any) -> None:
    pointer, words = np.zeros(1, np.uint64), np.zeros(1, np.uint32)
    address, nbytes = gpu.device.constant(module, name)
    assert nbytes == 8
    gpu.device.download(address, pointer)
    gpu.device.download(int(pointer[0]), words)
    assert words[0] == value


@pytest.mark.parametrize("options", [STRICT, STRICT | RANDOM_ORDER])
def test_barrier_and_dynamic_lds(options: int, gpu: GpuBackend, module: Any, simulator: Simulator) -> None:
    out = Memory(gpu.device, THREADS * 4)
    for seed in range(5):
        simulator.options(options, seed)
        launch(gpu, module, "reverse", 1, THREADS * 4, out.address)
        assert read(out).tolist() == list(range(THREADS))[::-1]


def _error(gpu: GpuBackend, module: Any, name: str, lds: int, *values: int) -> str:
    with pytest.raises(BackendError) as caught:
        launch(gpu, module, name, 1, lds, *values)
    return caught.value.message


def test_what_is_reported(gpu: GpuBackend, module: Any, simulator: Simulator) -> None:
    out = Memory(gpu.device, THREADS * 4)
    beyond = _error(gpu, module, "beyond", 0, out.address, THREADS)
    assert (
        "illegal memory access" in beyond
        and "outside every allocation" in beyond
        and "workgroup (0,0,0) wave 0" in beyond
    )
    assert simulator.last_error().startswith("kernel beyond: global_store_b32 at code+0x")
    assert (
        "another wave" in _error(gpu, module, "racing", THREADS * 4, out.address)
        or "nothing has written" in simulator.last_error()
    )
    assert "which has 0x200 bytes" in _error(gpu, module, "reverse", 512, out.address)
    gpu.device.clear(out.address, out.nbytes)
    simulator.options(STRICT, limit=100_000)
    assert "hangs" in _error(gpu, module, "spin", 0, out.address)


def test_work_goes_on_after_a_failure(gpu: GpuBackend, module: Any, simulator: Simulator) -> None:
    out = Memory(gpu.device, THREADS * 4)
    _error(gpu, module, "beyond", 0, out.address, THREADS)
    launch(gpu, module, "number", 1, 0, out.address, 0)
    assert read(out).tolist() == list(range(THREADS))


@pytest.mark.parametrize("options", [STRICT, STRICT | RANDOM_ORDER, STRICT | RANDOM_ORDER | WEAK])
def test_cooperative_launch(options: int, gpu: GpuBackend, module: Any, simulator: Simulator) -> None:
    """All workgroups are there at once: they meet at a barrier of the whole grid."""
    groups, rounds = 7, 4
    for seed in range(4):
        memory = Memory.zeros(gpu.device, (64 + 2 * groups) * 4)
        values = np.arange(1, groups + 1, dtype=np.uint32)
        gpu.device.upload(memory.address + 256, values)
        simulator.options(options, seed)
        given = ctypes.c_uint64(memory.address), ctypes.c_uint32(groups), ctypes.c_uint32(rounds)
        assert int(launch_together(gpu, module, "ring", groups, *given)) == 0, simulator.last_error()
        for _ in range(rounds):
            values = values + np.roll(values, -1)
        assert read(memory)[64 : 64 + groups].tolist() == values.tolist()


def test_too_many_cooperating_workgroups(gpu: GpuBackend, module: Any) -> None:
    memory = Memory.zeros(gpu.device, 4096)
    given = ctypes.c_uint64(memory.address), ctypes.c_uint32(1), ctypes.c_uint32(0)
    assert int(launch_together(gpu, module, "ring", 100_000, *given)) == 720


def test_same_seed_same_order(gpu: GpuBackend, module: Any, simulator: Simulator) -> None:
    """The instructions that waiting takes tell the order of waves."""

    def instructions(seed: int) -> int:
        memory = Memory.zeros(gpu.device, 4096)
        simulator.options(STRICT | RANDOM_ORDER, seed)
        simulator.counters()
        given = ctypes.c_uint64(memory.address), ctypes.c_uint32(7), ctypes.c_uint32(4)
        assert int(launch_together(gpu, module, "ring", 7, *given)) == 0
        return simulator.counters()["instructions"]

    assert instructions(3) == instructions(3)
    assert len({instructions(seed) for seed in range(4)}) > 1


def test_counters(gpu: GpuBackend, module: Any, simulator: Simulator) -> None:
    out = Memory(gpu.device, 2 * THREADS * 4)
    simulator.options(STRICT | COUNT)
    simulator.counters()
    launch(gpu, module, "reverse", 1, THREADS * 4, out.address)
    found = simulator.counters()
    waves = THREADS // 32
    assert found["barriers"] == waves and found["lds"] == 2 * waves
    assert found["vmem_store"] == waves and found["store_bytes"] == THREADS * 4
    assert found["lines"] == found["needed_lines"] == waves
    assert found["instructions"] > found["valu"] + found["salu"] > 2 * waves
    assert not any(simulator.counters().values())


def test_damaged_code_objects(gpu: GpuBackend, image: bytes) -> None:
    for start, value in ((0, b"X"), (18, b"\x3e"), (40, b"\xff\xff\xff\xff\xff")):
        damaged = image[:start] + value + image[start + len(value) :]
        with pytest.raises(BackendError, match="image is invalid"):
            gpu.device.module(damaged)
    with pytest.raises(BackendError, match="no kernel image"):
        gpu.device.module(image[:48] + b"\x4c" + image[49:])
    with pytest.raises(BackendError, match="symbol not found"):
        gpu.device.function(gpu.device.module(image), "none")


def test_occupancy(gpu: GpuBackend, module: Any) -> None:
    hip = gpu.device.hip  # type: ignore[attr-defined]
    function = gpu.device.function(module, "reverse")
    groups = {
        lds: hip.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(function, THREADS, lds)[1]
        for lds in (0, 1 << 15, 1 << 16)
    }
    assert groups == {0: 8, 1 << 15: 4, 1 << 16: 2}


def test_weak_memory_finds_a_release_of_one_wave_alone(gpu: GpuBackend, module: Any, simulator: Simulator) -> None:
    def wrong(options: int, careful: int) -> int:
        seeds = range(24)
        found = 0
        for seed in seeds:
            memory = Memory(gpu.device, 3 * THREADS * 4)
            gpu.device.clear(memory.address, memory.nbytes)
            simulator.options(options, seed)
            row = THREADS * 4
            addresses = (ctypes.c_uint64(memory.address + n * row) for n in (0, 1, 2))
            assert int(launch_together(gpu, module, "handover", 2, *addresses, ctypes.c_uint32(careful))) == 0
            found += read(memory)[2 * THREADS :].tolist() != list(range(THREADS))
        return found

    assert wrong(STRICT | RANDOM_ORDER | WEAK, 0) > 0
    assert wrong(STRICT | RANDOM_ORDER | WEAK, 1) == 0
    assert wrong(STRICT, 0) == 0  # what a check in order does not see


@pytest.mark.parametrize("options", [STRICT | GROUPS | more for more in (0, RANDOM_ORDER, RANDOM_ORDER | WEAK)])
def test_what_other_workgroups_stored(
    options: int, gpu: GpuBackend, module: Any, bugs: Any, simulator: Simulator
) -> None:
    """It is used after an acquire alone; workgroups that meet at barriers of the grid do that."""

    def error(made: Any, name: str, groups: int, *values: Any) -> str:
        memory = Memory.zeros(gpu.device, 16 * THREADS)
        rows = (ctypes.c_uint64(memory.address + 4 * n * THREADS) for n in range(3 if name == "stale" else 1))
        done = launch_together(gpu, made, name, groups, *rows, *map(ctypes.c_uint32, values))
        return "" if int(done) == 0 else simulator.last_error()

    for seed in range(4):
        simulator.options(options, seed)
        line = error(bugs, "stale", 2, 0)
        assert re.fullmatch(
            r"kernel stale: global_load_b32 at code\+0x[0-9a-f]+, workgroup \(1,0,0\) wave \d: "
            r"reads what workgroup \(0,0,0\) stored, at 0x[0-9a-f]+, without acquiring it",
            line,
        )
        assert error(bugs, "stale", 2, 1) == error(module, "ring", 7, 7, 4) == ""
