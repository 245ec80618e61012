"""Every check finds the bug that it is for, and passes what only looks like one."""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from graphrun.backends.device import Memory
from graphrun.backends.gpu import GpuBackend
from graphrun.core.errors import BackendError
from sim import simulator as single
from sim.gpu_code import functions
from sim.launches import (
    BOUNDS,
    COUNT,
    COUNTERS,
    LDS,
    POISON,
    RANDOM_ORDER,
    STRICT,
    THREADS,
    WAITS,
    WEAK,
    Simulator,
    code_object,
    launch,
    launch_together,
    read,
)

ROW = THREADS * 4
PLACE = r"kernel {}: {} at code\+0x[0-9a-f]+, workgroup \(0,0,0\) wave \d: "
NOP = bytes.fromhex("000080bf")
OUTSIDE = "access of {} bytes at 0x.* is outside every allocation"
WAITED = {  # the instruction that is wrong, and what is said of it
    "load_unwaited": ("v_add_nc_u32", r"reads v\d+ before the s_wait for its load"),
    "second_of_two": ("v_add_nc_u32", r"reads v\d+ before the s_wait for its load"),
    "overwritten_in_flight": ("v_mov_b32", r"overwrites v\d+ before the s_wait for its load"),
    "scalar_unwaited": ("s_add_co_i32", r"reads s\d+ before s_wait_kmcnt 0"),
    "first_scalar_of_two": ("s_add_co_i32", r"reads s\d+ before s_wait_kmcnt 0"),
    "scalar_unwaited_by_vector": ("v_mov_b32", r"reads s\d+ before s_wait_kmcnt 0"),
    "lds_unwaited": ("v_add_nc_u32", r"reads v\d+ before the s_wait for its load"),
    "store_unwaited_at_barrier": ("s_barrier_signal", "signals a barrier before the s_wait for the wave's LDS stores"),
}
READ_AFTER_WRITE = "reads what another wave wrote since the last barrier"
WRITE_AFTER_READ = "writes over what another wave read since the last barrier"
WRITE_AFTER_WRITE = "writes what another wave wrote since the last barrier"
RACES = {  # what is said when waves run one after the other, and in any order
    "read_too_early": (WRITE_AFTER_READ, f"({WRITE_AFTER_READ}|{READ_AFTER_WRITE})"),
    "overwritten_too_early": (WRITE_AFTER_READ, f"({WRITE_AFTER_READ}|{READ_AFTER_WRITE})"),
    "same_place": (WRITE_AFTER_WRITE, WRITE_AFTER_WRITE),
    "half_written": ("reads LDS that nothing has written", "reads LDS that nothing has written"),
    "atomic_and_store": (WRITE_AFTER_WRITE, WRITE_AFTER_WRITE),
}
RIGHT = {  # results by what is read: 0, 1, 2 ...
    "first_of_two": lambda row: row + 1,
    "atomics_alone": lambda row: np.full_like(row, row.sum()),
    "all_waits": lambda row: row[::-1] * row[0] + row[0],
}


@pytest.fixture
def row(gpu: GpuBackend) -> Memory:
    return Memory.of(gpu.device, np.arange(3, 3 + THREADS, dtype=np.uint32))


@pytest.fixture
def out(gpu: GpuBackend) -> Memory:
    return Memory.zeros(gpu.device, ROW)


def error_of(gpu: GpuBackend, simulator: Simulator, module: Any, name: str, *values: int, groups: int = 1) -> str:
    """The line that a failing launch leaves, which HIP's own text ends with."""
    with pytest.raises(BackendError) as caught:
        launch(gpu, module, name, groups, ROW, *values)
    line = simulator.last_error()
    assert caught.value.message.endswith(f"an illegal memory access was encountered: {line}") and "\n" not in line
    return line


def fails(line: str, name: str, instruction: str, text: str) -> None:
    assert re.fullmatch(PLACE.format(name, instruction) + text, line), line


@pytest.mark.parametrize("option", [BOUNDS, STRICT, BOUNDS | RANDOM_ORDER | WEAK])
@pytest.mark.parametrize(
    ("name", "instruction", "nbytes"),
    [
        ("fetch", "global_load_b32", 4),
        ("fetch_wide", "global_load_b128", 16),
        ("put", "global_store_b32", 4),
        ("tally", "global_atomic_add_u32", 4),
    ],
)
def test_bounds(
    name: str, instruction: str, nbytes: int, option: int, gpu: GpuBackend, bugs: Any, out: Memory, simulator: Simulator
) -> None:
    """One element too many at either end, half a one, memory that was given back, and none at all."""
    memory = Memory.zeros(gpu.device, THREADS * nbytes)
    simulator.options(option)
    launch(gpu, bugs, name, 1, 0, memory.address, out.address)
    gone = Memory(gpu.device, THREADS * nbytes)
    address = gone.address
    del gone
    others = [Memory(gpu.device, THREADS * nbytes) for _ in range(4)]
    assert address not in [other.address for other in others]
    across = [] if name == "tally" else [memory.address + nbytes // 2]  # atomics are aligned
    for wrong in (memory.address + nbytes, memory.address - nbytes, 0, address, *across):
        line = error_of(gpu, simulator, bugs, name, wrong, out.address)
        fails(line, name, instruction, OUTSIDE.format(nbytes))


def test_bounds_of_scalar_loads_and_pointers(
    gpu: GpuBackend, bugs: Any, row: Memory, out: Memory, simulator: Simulator
) -> None:
    line = error_of(gpu, simulator, bugs, "fetch_one", row.address + ROW, out.address)
    fails(line, "fetch_one", "s_load_b32", OUTSIDE.format(4))
    poisoned = Memory(gpu.device, 256)  # a table that was never written leads nowhere
    line = error_of(gpu, simulator, bugs, "through_table", poisoned.address, out.address)
    fails(line, "through_table", "global_load_b32", OUTSIDE.format(4))


def test_host_memory_is_not_the_cards(gpu: GpuBackend, bugs: Any, out: Memory, simulator: Simulator) -> None:
    hip = gpu.device.hip  # type: ignore[attr-defined]
    array = np.arange(THREADS, dtype=np.uint32)
    _, pinned = hip.hipHostMalloc(ROW, 0)
    try:
        for address in (array.ctypes.data, int(pinned)):
            line = error_of(gpu, simulator, bugs, "fetch", address, out.address)
            fails(line, "fetch", "global_load_b32", OUTSIDE.format(4))
    finally:
        assert int(hip.hipHostFree(pinned)[0]) == 0


@pytest.mark.parametrize("name", WAITED)
def test_waits(name: str, gpu: GpuBackend, bugs: Any, row: Memory, out: Memory, simulator: Simulator) -> None:
    line = error_of(gpu, simulator, bugs, name, row.address, out.address)
    fails(line, name, *WAITED[name])
    simulator.options(STRICT & ~WAITS)
    launch(gpu, bugs, name, 1, ROW, row.address, out.address)


@pytest.mark.parametrize("name", RACES)
@pytest.mark.parametrize("options", [STRICT, STRICT | RANDOM_ORDER, STRICT | RANDOM_ORDER | WEAK])
def test_races_in_lds(
    name: str, options: int, gpu: GpuBackend, bugs: Any, row: Memory, out: Memory, simulator: Simulator
) -> None:
    for seed in range(6):
        simulator.options(options, seed)
        line = error_of(gpu, simulator, bugs, name, row.address, out.address)
        said = RACES[name][1 if options & RANDOM_ORDER else 0]
        fails(line, name, r"ds_\w+", rf"{said}, at LDS\+0x[0-9a-f]+( \(wave \d\))?")
    simulator.options(options & ~LDS)
    launch(gpu, bugs, name, 1, ROW, row.address, out.address)


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("options", [STRICT, STRICT | RANDOM_ORDER, STRICT | RANDOM_ORDER | WEAK])
def test_no_false_alarm(
    name: str, options: int, gpu: GpuBackend, bugs: Any, row: Memory, out: Memory, simulator: Simulator
) -> None:
    for seed in range(6):
        simulator.options(options, seed)
        launch(gpu, bugs, name, 1, ROW, row.address, out.address)
        assert read(out).tolist() == RIGHT[name](read(row)).tolist()


def test_loads_end_with_their_wave(gpu: GpuBackend, bugs: Any, row: Memory, out: Memory, simulator: Simulator) -> None:
    launch(gpu, bugs, "ends_in_flight", 4, 0, row.address, out.address)


def test_barriers(gpu: GpuBackend, bugs: Any, row: Memory, out: Memory, simulator: Simulator) -> None:
    given = row.address, out.address
    line = error_of(gpu, simulator, bugs, "waits_without_signal", *given)
    fails(line, "waits_without_signal", "s_barrier_wait", "waits for a barrier that the wave has not signalled")
    line = error_of(gpu, simulator, bugs, "signals_twice", *given)
    fails(line, "signals_twice", "s_barrier_signal", "signals the barrier again without a wait for it")
    launch(gpu, bugs, "some_leave_first", 1, ROW, *given)
    assert read(out)[:64].tolist() == read(row)[:64][::-1].tolist()


def test_waves_that_wait_for_ever(gpu: GpuBackend, module: Any, bugs: Any, out: Memory, simulator: Simulator) -> None:
    simulator.options(STRICT, limit=100_000_000)
    line = error_of(gpu, simulator, module, "spin_fast", out.address)
    assert re.match(PLACE.format("spin_fast", r"\w+") + "deadlock: in ", line), line
    simulator.options(STRICT | RANDOM_ORDER, limit=20_000)
    line = error_of(gpu, simulator, module, "spin", out.address)
    assert re.match(PLACE.format("spin", r"\w+") + "hangs: the launch has run 20000 instructions", line), line


def test_a_grid_barrier_with_one_too_many(gpu: GpuBackend, module: Any, simulator: Simulator) -> None:
    for options in (STRICT, STRICT | RANDOM_ORDER | WEAK):
        memory = Memory.zeros(gpu.device, 4096)
        simulator.options(options, seed=1, limit=300_000)
        given = ctypes.c_uint64(memory.address), ctypes.c_uint32(5), ctypes.c_uint32(1)
        assert int(launch_together(gpu, module, "ring", 4, *given)) == 700
        assert "hangs" in simulator.last_error()


def _changed(image: bytes, name: str) -> Iterator[tuple[str, bytes]]:
    """The code object with one s_wait_* of the kernel after the other taken out."""
    body = functions(image)[name]
    start, at = image.index(body), 0
    while at < len(body):
        size, text, _ = single.decode(body, at)
        if text.startswith("s_wait_") and not text.startswith("s_wait_alu"):
            yield text.split()[0], image[: start + at] + NOP + image[start + at + 4 :]
        at += size or 4


def test_every_wait_that_is_taken_out(gpu: GpuBackend, row: Memory, out: Memory, simulator: Simulator) -> None:
    """It is reported, or was not needed: then results stay."""
    image = code_object("checks")
    wanted = RIGHT["all_waits"](read(row)).tolist()
    reported: Counter[str] = Counter()
    for wait, changed in _changed(image, "all_waits"):
        broken = gpu.device.module(changed)
        gpu.device.clear(out.address, ROW)
        try:
            launch(gpu, broken, "all_waits", 1, ROW, row.address, out.address)
        except BackendError as error:
            assert re.search("before the s_wait|before s_wait_kmcnt", error.message)
            reported[wait] += 1
        else:
            assert read(out).tolist() == wanted, wait
    for counter in ("kmcnt", "loadcnt", "dscnt"):
        assert any(counter in wait for wait in reported), reported


def _runs(gpu: GpuBackend, simulator: Simulator, module: Any, name: str, options: int, careful: int) -> list[bool]:
    """Whether the second of two workgroups saw the row that the first one wrote, by seed."""
    found = []
    for seed in range(16):
        memory = Memory(gpu.device, 3 * ROW)
        gpu.device.clear(memory.address, memory.nbytes)
        simulator.options(options, seed)
        addresses = [ctypes.c_uint64(memory.address + n * ROW) for n in range(3)]
        error = launch_together(gpu, module, name, 2, *addresses, ctypes.c_uint32(careful))
        assert int(error) == 0, simulator.last_error()
        found.append(read(memory)[2 * THREADS :].tolist() == list(range(THREADS)))
    return found


def test_weak_memory_finds_a_missing_acquire(gpu: GpuBackend, bugs: Any, simulator: Simulator) -> None:
    simulator.counters()
    weak = STRICT | RANDOM_ORDER | WEAK
    assert not all(_runs(gpu, simulator, bugs, "stale", weak, 0))
    assert simulator.counters()["stale_reads"] > 0
    assert all(_runs(gpu, simulator, bugs, "stale", weak, 1))
    assert all(_runs(gpu, simulator, bugs, "stale", STRICT | RANDOM_ORDER, 0))  # without caches it is hidden


def test_poison(gpu: GpuBackend, bugs: Any, out: Memory, simulator: Simulator) -> None:
    """What was never written is no number, in memory and in LDS."""
    memory = Memory(gpu.device, ROW)
    launch(gpu, bugs, "fetch", 1, 0, memory.address, out.address)
    assert np.isnan(read(out).view(np.float32)).all()
    simulator.options(POISON)
    launch(gpu, bugs, "half_written", 1, ROW, memory.address, out.address)
    assert (read(out)[128:] == 0xCDCDCDCD).all()


def test_counters_of_slow_accesses(gpu: GpuBackend, bugs: Any, module: Any, out: Memory, simulator: Simulator) -> None:
    waves, lanes = THREADS // 32, 32
    far = Memory(gpu.device, 32 * ROW)
    simulator.options(STRICT | COUNT)

    def counted(module: Any, name: str, lds: int, *values: int) -> dict[str, int]:
        simulator.counters()
        launch(gpu, module, name, 1, lds, *values)
        return simulator.counters()

    found = counted(bugs, "far_apart", 0, far.address)
    assert (found["lines"], found["needed_lines"]) == (waves * lanes, waves)
    assert counted(bugs, "one_bank", 1 << 16, out.address)["bank_conflicts"] == 2 * waves * (lanes - 1)
    assert counted(module, "reverse", ROW, out.address)["bank_conflicts"] == 0
    assert counted(bugs, "tally", 0, far.address, out.address)["atomics"] == waves


def test_counters_have_their_names() -> None:
    name = single.load().counter_name
    name.argtypes, name.restype = [ctypes.c_uint32], ctypes.c_char_p
    assert [name(n).decode() for n in range(len(COUNTERS))] == list(COUNTERS)
    assert name(len(COUNTERS)) is None
