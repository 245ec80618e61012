"""The functions of AMD's library that the package hip-python finds in the simulator's."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from graphrun.backends.device import Memory
from graphrun.backends.gpu import GpuBackend
from sim.launches import THREADS, Simulator, read

BYTES = THREADS * 4
INVALID, OUT_OF_MEMORY, BAD_HANDLE, NOT_FOUND, TOO_LARGE = 1, 2, 400, 500, 720
VRAM = 32 << 30


@pytest.fixture(scope="module")
def hip(gpu: GpuBackend) -> Any:
    return gpu.device.hip  # type: ignore[attr-defined]


def good(result: Any) -> Any:
    """What a function returned beside success."""
    error, *rest = result
    assert int(error) == 0, error
    return rest[0] if len(rest) == 1 else tuple(rest)


def code(result: Any) -> int:
    return int(result[0])


@pytest.fixture
def pair(hip: Any) -> Iterator[tuple[int, int]]:
    """Two places of device memory."""
    made = [int(good(hip.hipMalloc(BYTES))) for _ in range(2)]
    yield made[0], made[1]
    for address in made:
        good(hip.hipFree(address))


def test_names_and_versions(hip: Any) -> None:
    good(hip.hipInit(0))
    assert good(hip.hipGetDevice()) == 0
    assert code(hip.hipSetDevice(1)) == INVALID
    assert code(hip.hipGetDeviceProperties(1)) == INVALID
    assert good(hip.hipRuntimeGetVersion()) == good(hip.hipDriverGetVersion()) == 70100000
    assert good(hip.hipDeviceTotalMem(0)) == VRAM
    properties = good(hip.hipGetDeviceProperties(0))
    assert (properties.name, properties.gcnArchName) == ("simulated gfx1201", "gfx1201")
    assert (properties.major, properties.minor, properties.maxThreadsPerBlock) == (12, 0, 1024)
    assert (properties.sharedMemPerBlock, properties.maxThreadsPerMultiProcessor) == (65536, 2048)


def test_how_much_memory_the_card_has_is_a_choice(hip: Any, simulator: Simulator) -> None:
    used = good(hip.hipMemGetInfo())[1] - good(hip.hipMemGetInfo())[0]
    try:
        simulator.memory(used + (1 << 20))
        assert good(hip.hipMemGetInfo()) == (1 << 20, used + (1 << 20))
        assert code(hip.hipMalloc((1 << 20) + 1)) == OUT_OF_MEMORY
        good(hip.hipFree(good(hip.hipMalloc(1 << 20))))
        assert good(hip.hipGetDeviceProperties(0)).totalGlobalMem == used + (1 << 20)
    finally:
        simulator.memory(VRAM)


def test_copies(hip: Any, pair: tuple[int, int]) -> None:
    kind = hip.hipMemcpyKind
    here, there = pair
    data, back = np.arange(THREADS, dtype=np.uint32), np.zeros(THREADS, np.uint32)
    stream = good(hip.hipStreamCreate())
    for to_card, on_card, from_card in (
        (kind.hipMemcpyHostToDevice, kind.hipMemcpyDeviceToDevice, kind.hipMemcpyDeviceToHost),
        (kind.hipMemcpyDefault,) * 3,
    ):
        data += 1
        good(hip.hipMemcpyAsync(here, data, BYTES, to_card, stream))
        good(hip.hipMemcpy(there, here, BYTES, on_card))
        good(hip.hipMemcpyAsync(back, there, BYTES, from_card, stream))
        good(hip.hipStreamSynchronize(stream))
        assert back.tolist() == data.tolist()
    good(hip.hipMemsetAsync(there + 4, 7, 4, stream))
    good(hip.hipMemcpyDtoH(back, there, BYTES))
    assert back[:3].tolist() == [data[0], 0x07070707, data[2]]
    good(hip.hipMemcpyHtoD(here, back, BYTES))
    good(hip.hipMemcpyDtoD(there, here, BYTES))
    good(hip.hipStreamDestroy(stream))


def test_copies_that_leave_the_memory_or_mistake_an_end(hip: Any, pair: tuple[int, int]) -> None:
    kind = hip.hipMemcpyKind
    here, there = pair
    data = np.zeros(THREADS, np.uint32)
    up, down, across = kind.hipMemcpyHostToDevice, kind.hipMemcpyDeviceToHost, kind.hipMemcpyDeviceToDevice
    for to, source, nbytes, way in (
        (here + 4, data, BYTES, up),
        (data, here + 4, BYTES, down),
        (here, there + 4, BYTES, across),
        (here, there, BYTES, up),
        (here, there, BYTES, down),
        (here, data, BYTES, across),
        (data, data, BYTES, down),
        (here + 4, data, BYTES, kind.hipMemcpyDefault),
    ):
        assert code(hip.hipMemcpy(to, source, nbytes, way)) == INVALID
    assert code(hip.hipMemset(here + 4, 0, BYTES)) == INVALID
    assert code(hip.hipMemset(data.ctypes.data, 0, BYTES)) == INVALID
    assert code(hip.hipFree(here + 4)) == INVALID
    good(hip.hipMemcpy(here + 4, data, BYTES - 4, up))


def test_host_memory(hip: Any, pair: tuple[int, int]) -> None:
    before = good(hip.hipMemGetInfo())
    pinned = good(hip.hipHostMalloc(BYTES, 0))
    array = np.ctypeslib.as_array(ctypes.cast(int(pinned), ctypes.POINTER(ctypes.c_uint32)), (THREADS,))
    array[:] = np.arange(THREADS)
    good(hip.hipMemcpy(pair[0], pinned, BYTES, hip.hipMemcpyKind.hipMemcpyHostToDevice))
    assert good(hip.hipMemGetInfo()) == before
    assert code(hip.hipFree(pinned)) == INVALID
    good(hip.hipHostFree(pinned))
    assert code(hip.hipHostFree(pair[0])) == INVALID


def test_streams_and_events(gpu: GpuBackend, hip: Any, module: Any) -> None:
    out = Memory(gpu.device, BYTES)
    function = good(hip.hipModuleGetFunction(module, b"number"))
    stream = good(hip.hipStreamCreateWithFlags(1))
    first, last = good(hip.hipEventCreate()), good(hip.hipEventCreateWithFlags(0))
    good(hip.hipEventRecord(first, stream))
    extra = (ctypes.c_uint64(out.address), ctypes.c_uint32(5))
    good(hip.hipModuleLaunchKernel(function, 1, 1, 1, THREADS, 1, 1, 0, stream, None, extra))
    good(hip.hipEventRecord(last, stream))
    good(hip.hipStreamWaitEvent(stream, last, 0))
    good(hip.hipStreamQuery(stream))
    good(hip.hipEventSynchronize(last))
    good(hip.hipEventQuery(last))
    assert 0 < good(hip.hipEventElapsedTime(first, last)) < 10_000
    assert read(out)[:3].tolist() == [5, 6, 7]
    for event in (first, last):
        good(hip.hipEventDestroy(event))
    good(hip.hipStreamDestroy(stream))
    good(hip.hipDeviceSynchronize())


@pytest.mark.parametrize("way", ["extra", "values"])
def test_arguments_of_every_size(way: str, gpu: GpuBackend, hip: Any, module: Any) -> None:
    out = Memory(gpu.device, BYTES)
    function = good(hip.hipModuleGetFunction(module, b"mixed"))
    values = ctypes.c_uint8(200), ctypes.c_uint16(60000), ctypes.c_double(3e9), ctypes.c_uint64(out.address)
    given = (*values, ctypes.c_float(12.75))
    places = (ctypes.c_void_p * len(given))(*(ctypes.addressof(value) for value in given))
    chosen = (None, given) if way == "extra" else (places, None)
    good(hip.hipModuleLaunchKernel(function, 1, 1, 1, THREADS, 1, 1, 0, None, *chosen))
    assert read(out)[:4].tolist() == [200, 60000, 3_000_000_000, 12]


def test_three_dimensions_and_a_wave_that_is_not_full(gpu: GpuBackend, hip: Any, module: Any) -> None:
    groups, threads = 2 * 3 * 2, 5 * 3 * 2
    out = Memory.zeros(gpu.device, groups * threads * 4 + 256)
    function = good(hip.hipModuleGetFunction(module, b"number_all"))
    good(hip.hipModuleLaunchKernel(function, 2, 3, 2, 5, 3, 2, 0, None, None, (ctypes.c_uint64(out.address),)))
    wanted = [
        g << 16 | z << 8 | y << 4 | x for g in range(groups) for z in range(2) for y in range(3) for x in range(5)
    ]
    assert read(out).tolist() == wanted + [0] * 64


def test_scratch_memory(gpu: GpuBackend, hip: Any, module: Any) -> None:
    out = Memory(gpu.device, BYTES)
    function = good(hip.hipModuleGetFunction(module, b"in_scratch"))
    assert good(hip.hipFuncGetAttribute(hip.hipFunction_attribute.HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function)) >= 64
    extra = (ctypes.c_uint64(out.address), ctypes.c_uint32(3))
    good(hip.hipModuleLaunchKernel(function, 1, 1, 1, THREADS, 1, 1, 0, None, None, extra))
    order = {(n * 5 + 3) % 16: n for n in range(16)}
    assert read(out).tolist() == [order[thread % 16] * 1000 + thread for thread in range(THREADS)]


def test_static_and_dynamic_lds(gpu: GpuBackend, hip: Any, module: Any) -> None:
    out = Memory(gpu.device, BYTES)
    function = good(hip.hipModuleGetFunction(module, b"own_and_shared"))
    attribute = hip.hipFunction_attribute
    assert good(hip.hipFuncGetAttribute(attribute.HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function)) == 256
    assert good(hip.hipFuncGetAttribute(attribute.HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function)) == THREADS
    extra = (ctypes.c_uint64(out.address),)
    good(hip.hipModuleLaunchKernel(function, 1, 1, 1, THREADS, 1, 1, BYTES, None, None, extra))
    assert read(out).tolist() == [thread % 64 + 100 * (255 - thread) for thread in range(THREADS)]
    too_much = 65536 - 256 + 4
    assert code(hip.hipModuleLaunchKernel(function, 1, 1, 1, THREADS, 1, 1, too_much, None, None, extra)) == INVALID


def test_launches_that_cannot_be(hip: Any, module: Any) -> None:
    function = good(hip.hipModuleGetFunction(module, b"spin"))
    extra = (ctypes.c_uint64(0),)
    for grid, block in (
        ((0, 1, 1), THREADS),
        ((1, 0, 1), THREADS),
        ((1, 1, 1), 0),
        ((1, 1, 1), 512),
        ((1, 1, 70000), THREADS),
    ):
        assert code(hip.hipModuleLaunchKernel(function, *grid, block, 1, 1, 0, None, None, extra)) == INVALID
    assert code(hip.hipModuleLaunchKernel(function, 1, 1, 1, THREADS, 1, 1, 0, None, None, None)) == INVALID
    assert code(hip.hipModuleLaunchKernel(None, 1, 1, 1, THREADS, 1, 1, 0, None, None, extra)) == BAD_HANDLE


def test_errors_by_name(hip: Any) -> None:
    error = hip.hipError_t
    hip.hipGetLastError()  # of an earlier test
    for value, name, text in (
        (error.hipSuccess, "hipSuccess", "no error"),
        (error.hipErrorOutOfMemory, "hipErrorOutOfMemory", "out of memory"),
        (error.hipErrorNotFound, "hipErrorNotFound", "named symbol not found"),
        (error.hipErrorNotReady, "hipErrorUnknown", "unknown error"),
    ):
        assert str(hip.hipGetErrorName(value)[-1]) == name
        assert str(hip.hipGetErrorString(value)[-1]) == text
    assert code(hip.hipSetDevice(9)) == INVALID
    assert code(hip.hipPeekAtLastError()) == INVALID
    assert code(hip.hipGetLastError()) == INVALID
    assert code(hip.hipGetLastError()) == 0


def test_modules(gpu: GpuBackend, hip: Any, image: bytes) -> None:
    made = good(hip.hipModuleLoadData(image))
    address, nbytes = good(hip.hipModuleGetGlobal(made, b"where"))
    words = np.zeros(nbytes, np.uint8)
    down = hip.hipMemcpyKind.hipMemcpyDeviceToHost
    good(hip.hipMemcpy(words, address, nbytes, down))
    assert code(hip.hipModuleGetGlobal(made, b"nowhere")) == NOT_FOUND
    good(hip.hipModuleUnload(made))
    assert code(hip.hipMemcpy(words, address, nbytes, down)) == INVALID
    assert code(hip.hipModuleUnload(None)) == BAD_HANDLE


def test_what_the_library_has_not(hip: Any) -> None:
    with pytest.raises(RuntimeError, match="hipGraphCreate"):
        hip.hipGraphCreate(0)
