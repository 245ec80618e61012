"""Kernels written for tests of launches, the simulator's own functions, and how both are called."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from graphrun.backends.device import Memory
from graphrun.backends.gpu import GpuBackend
from sim.gpu_code import compile_kernels
from sim.simulator import ZIG, rocm_folder

BOUNDS, WAITS, LDS, COUNT, RANDOM_ORDER, WEAK, PERTURB, POISON = (1 << n for n in range(8))
STRICT = BOUNDS | WAITS | LDS | POISON
LIMIT = 50_000_000
COUNTERS = (
    *("instructions", "salu", "valu", "vopd", "trans", "dot4", "wmma", "smem", "vmem_load", "vmem_store", "atomics"),
    *("lds", "branches", "barriers", "waits", "lines", "needed_lines", "load_bytes", "store_bytes"),
    *("bank_conflicts", "stale_reads"),
)
THREADS = 256
SOURCE = """
typedef unsigned int u32;
#define GLOBAL __attribute__((address_space(1)))
#define KERNEL __attribute__((amdgpu_kernel, amdgpu_flat_work_group_size(256, 256), visibility("protected")))
#define GROUP __builtin_amdgcn_workgroup_id_x()
#define THREAD __builtin_amdgcn_workitem_id_x()
#define ORDER(kind, scope) __builtin_amdgcn_fence(kind, scope)
extern __attribute__((address_space(3))) u32 shared[];
static void meet(void) {
  ORDER(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  ORDER(__ATOMIC_ACQUIRE, "workgroup");
}
static const u32 first = 1000;
__attribute__((visibility("protected"))) const u32 *const where = &first;
KERNEL void number(u32 GLOBAL *out, u32 start) { out[GROUP * 256 + THREAD] = start + GROUP * 1000 + THREAD; }
KERNEL void beyond(u32 GLOBAL *out, u32 words) { out[words + THREAD] = 1; }
KERNEL void reverse(u32 GLOBAL *out) {
  shared[THREAD] = THREAD;
  meet();
  out[THREAD] = shared[THREAD ^ 255];
}
KERNEL void racing(u32 GLOBAL *out) {
  shared[THREAD] = THREAD;
  out[THREAD] = shared[THREAD ^ 255];
}
// The first workgroup hands a row to the second. Unless careful, it only makes sure of its first wave's stores.
KERNEL void handover(u32 GLOBAL *data, u32 GLOBAL *flag, u32 GLOBAL *out, u32 careful) {
  if (GROUP == 0) {
    data[THREAD] = THREAD;
    if (careful) ORDER(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    if (THREAD == 0) __scoped_atomic_store_n(flag, 1, __ATOMIC_RELEASE, __MEMORY_SCOPE_DEVICE);
    return;
  }
  while (!__scoped_atomic_load_n(flag, __ATOMIC_ACQUIRE, __MEMORY_SCOPE_DEVICE)) __builtin_amdgcn_s_sleep(1);
  out[THREAD] = data[THREAD];
}
KERNEL void spin(u32 GLOBAL *flag) {
  while (!__scoped_atomic_load_n(flag, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE)) __builtin_amdgcn_s_sleep(1);
}
// A barrier of the whole grid, between sums of neighbours.
KERNEL void ring(u32 GLOBAL *tickets, u32 groups, u32 rounds) {
  u32 GLOBAL *const values = tickets + 64;
  for (u32 n = 0; n < rounds; n++) {
    u32 GLOBAL *const from = values + (n & 1) * groups, *const to = values + (~n & 1) * groups;
    if (THREAD == 0) to[GROUP] = from[GROUP] + from[(GROUP + 1) % groups];
    meet();
    if (THREAD == 0) {
      __scoped_atomic_fetch_add(tickets, 1, __ATOMIC_ACQ_REL, __MEMORY_SCOPE_DEVICE);
      while (__scoped_atomic_load_n(tickets, __ATOMIC_ACQUIRE, __MEMORY_SCOPE_DEVICE) < groups * (n + 1))
        __builtin_amdgcn_s_sleep(1);
    }
    meet();
    ORDER(__ATOMIC_ACQUIRE, "agent");
  }
}
"""


class Simulator:
    """The library's own functions."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(str(rocm_folder() / "lib" / "libamdhip64.so"))
        self.options(STRICT)

    def options(self, options: int, seed: int = 0, limit: int = LIMIT) -> None:
        self.library.sim_options(ctypes.c_uint32(options), ctypes.c_uint64(seed), ctypes.c_uint64(limit))

    def counters(self) -> dict[str, int]:
        found = (ctypes.c_uint64 * len(COUNTERS))()
        self.library.sim_counters(found)
        return dict(zip(COUNTERS, found, strict=True))

    def last_error(self) -> str:
        text = ctypes.create_string_buffer(2400)
        self.library.sim_last_error(text, ctypes.c_uint64(len(text)))
        return text.value.decode()


def link(folder: Path, source: str) -> bytes:
    (folder / "k.c").write_text(source)
    compile_kernels(folder / "k.c", folder / "k.o", "-c")
    subprocess.run([*ZIG, "ld.lld", "-shared", str(folder / "k.o"), "-o", str(folder / "k.hsaco")], check=True)
    return (folder / "k.hsaco").read_bytes()


def launch(gpu: GpuBackend, module: Any, name: str, groups: int, lds: int, *values: int) -> None:
    gpu.device.launch(gpu.device.function(module, name), groups, lds, values)


def launch_together(gpu: GpuBackend, module: Any, name: str, groups: int, *values: Any) -> Any:
    """A cooperative launch; the error code."""
    function = gpu.device.function(module, name)
    places = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    hip = gpu.device.hip  # type: ignore[attr-defined]
    return hip.hipModuleLaunchCooperativeKernel(function, groups, 1, 1, THREADS, 1, 1, 0, None, places)[0]


def read(memory: Memory) -> np.ndarray[Any, Any]:
    return memory.read(0, memory.nbytes).view(np.uint32)
