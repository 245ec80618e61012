"""Bugs put into the kernels of the package are found by the check that is for them; without one there is no alarm."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import arguments
import pytest
from arguments import Arguments, Case
from kernel_cases import KERNELS, fitting

from graphrun.backends.codeobject import GFX1201, code_object
from graphrun.backends.gpu import GpuBackend
from sim.launches import BOUNDS, GROUPS, LDS, RANDOM_ORDER, STRICT, WAITS, WEAK, Simulator
from sim.planted import OTHER_BITS, Edit, alarm, instructions, kernels_with, without

ANY_ORDER = RANDOM_ORDER | WEAK
ALL_CHECKS = STRICT | GROUPS | ANY_ORDER
EARLY = r"before the s_wait|before s_wait_kmcnt"
RACE = "another wave (wrote|read) since the last barrier"
LEFT = "counters were left behind"
LAST = "if (gr_lds[0] + 1 != total) return 0;"
RELEASED = "release_device();\n  barrier();\n  if (thread_id() == 0) gr_lds[0]"
BARE = "__builtin_amdgcn_s_barrier();\n  if (thread_id() == 0) gr_lds[0]"
ACQUIRED = "return 0;\n  acquire_device();"
SUM = ("  barrier();\n  if (lane_id() == 0) part[wave_id()] = x;\n", "  barrier();\n  float total")
PART = "  if (lane_id() == 0) part"
UNLESS = "  if (k.i >= a->N) return;"
BEST, CHANNEL = "  rank best = 0;\n  for (uint32_t i = THREADS", "  const float y = x[k.i]"
OUTSIDE, UNWRITTEN = "is outside every allocation", "reads LDS that nothing has written"
MANY = ("argmax", "topk", "attend-attn_split-", "attend-attn_split_t", "attend_block", "delta_layer")  # workgroups meet
ALONE = ("rms_norm", "gemv-gemv_q4_0_t", "gemv-gemv_q6_k_t", "gemv-gemm_q4_k", "delta_rule-delta_rule", "gated_norm")
SEEDS = 40


@dataclass(frozen=True)
class Bug:
    """Edits of a kernel's source, and what finds it: options of the simulator, and what is said."""

    kernel: str  # the start of its name among KERNELS
    edits: tuple[Edit, ...]
    options: int
    found: str
    seeds: int = 1
    hidden: int | None = None  # options under which it passes
    tokens: int | None = None  # if not the fewest


def bug(kernel: str, file: str, old: str, new: str, options: int, found: str, **more: int) -> Bug:
    return Bug(kernel, (Edit(file, old, new),), options, found, **more)


RELAXED = Edit("gr.h", "(p, 1u, __ATOMIC_ACQ_REL, DEVICE_SCOPE)", "(p, 1u, __ATOMIC_RELAXED, DEVICE_SCOPE)")
UNRELEASED, UNACQUIRED = Edit("gr.h", RELEASED, BARE), Edit("gr.h", ACQUIRED, "return 0;")
ATTEND, SEVERAL = "attend-attn_split-", "attend-attn_split_t"
BUGS = {
    "first barrier missing": bug("topk", "sample.c", f"  barrier();\n{PART}", PART, LDS | RANDOM_ORDER, RACE, seeds=8),
    "second barrier missing": bug(
        "rms_norm", "gr.h", SUM[1], "  float total", LDS | RANDOM_ORDER, f"{RACE}|{UNWRITTEN}", seeds=8
    ),
    "half-written LDS": bug("rms_norm", "gr.h", SUM[0], SUM[0].replace("lane_id", "thread_id"), LDS, UNWRITTEN),
    "release of one wave alone": Bug(SEVERAL, (UNRELEASED,), STRICT | ANY_ORDER, OTHER_BITS, 24, STRICT, 12),
    "no release": Bug(SEVERAL, (UNRELEASED, RELAXED), STRICT | ANY_ORDER, OTHER_BITS, 24, STRICT, 12),
    "no acquire": Bug(
        ATTEND,
        (UNACQUIRED, RELAXED),
        STRICT | GROUPS,
        r"reads what workgroup \(\d+,0,0\) stored, at 0x[0-9a-f]+, without acquiring it",
        hidden=STRICT,
    ),
    "one too few": bug("argmax", "gr.h", LAST, LAST.replace("1", "2"), STRICT, f"{LEFT}|{OTHER_BITS}"),
    "one too many": bug("argmax", "gr.h", LAST, LAST.replace("+ 1", ""), STRICT, LEFT),
    "counter not set back": bug(ATTEND, "gr.h", "  if (thread_id() == 0) poke(counter, 0);\n", "", STRICT, LEFT),
    "row out of bounds": bug("argmax", "sample.c", f"row);\n{BEST}", f"row + 1);\n{BEST}", BOUNDS, OUTSIDE),
    "channel out of bounds": bug(
        "rms_norm", "rows.c", f"  if (k.i >= a->N) return;\n{CHANNEL}", CHANNEL, BOUNDS, OUTSIDE
    ),
    "wrong neg_lo": bug("gemv-gemv_q8_0-", "gr.h", "sudot4(1, (int)a", "sudot4(0, (int)a", STRICT, OTHER_BITS),
    "swapped scale": bug(
        "gemv-gemv_q6_k-",
        "weights.h",
        "fmaf(f.s1, (float)dot1, f.s0 * (float)dot0)",
        "fmaf(f.s0, (float)dot1, f.s1 * (float)dot0)",
        STRICT,
        OTHER_BITS,
    ),
    "overlapping tiles": bug(
        "gemv-gemv_q4_0-",
        "gemv.c",
        "    if (row < a->w->rows) one_token(layout, a, row); ",
        "    for (uint32_t r = row; r < a->w->rows && r < row + 2; r++) one_token(layout, a, r); ",
        STRICT | GROUPS,
        r"writes over what workgroup \(\d+,0,0\) stored",
        hidden=STRICT,
    ),
}


def named(start: str) -> str:
    (name,) = (n for n in KERNELS if n.startswith(start))
    return name


@pytest.fixture(autouse=True)
def sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large enough for several workgroups to share a result."""
    for letter, size in {"C": 96, "D": 64, "S": 64, "V": 4200}.items():
        monkeypatch.setitem(arguments.SIZES, letter, size)
    monkeypatch.setattr(arguments, "POSITION", 66)


def call(name: str, tokens: int | None = None) -> tuple[Case, Arguments]:
    op, kernel = KERNELS[name]
    case = next(fitting(op, kernel))
    case = replace(case, tokens=tokens or case.tokens)
    return case, arguments.arguments(op, case)


def alarms(
    gpu: GpuBackend,
    simulator: Simulator,
    image: bytes,
    name: str,
    options: int,
    seeds: Sequence[int] = (0,),
    tokens: int | None = None,
) -> Iterator[str]:
    case, given = call(name, tokens)
    for seed in seeds:
        simulator.options(options, seed)
        yield alarm(gpu, simulator, image, name, case, given)


@pytest.mark.parametrize("name", BUGS)
def test_planted_bugs(name: str, gpu: GpuBackend, simulator: Simulator) -> None:
    """The unedited kernel passes under the same options, and the bug hides where its check is off."""
    planted = BUGS[name]
    kernel = named(planted.kernel)
    seeds = range(planted.seeds)
    image = kernels_with(planted.edits, [KERNELS[kernel][1].name])
    said = [text for text in alarms(gpu, simulator, image, kernel, planted.options, seeds, planted.tokens) if text]
    assert said and all(re.search(planted.found, text) for text in said), said
    assert not any(alarms(gpu, simulator, code_object(GFX1201), kernel, planted.options, seeds, planted.tokens))
    if planted.hidden is not None:
        assert not any(alarms(gpu, simulator, image, kernel, planted.hidden, tokens=planted.tokens))


@pytest.mark.parametrize("kernel", ["rms_norm", "argmax", "gemv-gemv_q4_0_t", "delta_layer"])
def test_every_wait_and_barrier_that_is_taken_out(kernel: str, gpu: GpuBackend, simulator: Simulator) -> None:
    """A wait is missed where it is needed, or results stay; a barrier is missed by the check of LDS."""
    name = named(kernel)
    image = code_object(GFX1201)
    places = list(instructions(image, KERNELS[name][1].name))
    found: Counter[str] = Counter()
    for place in places:
        if not place.text.startswith(("s_wait_loadcnt", "s_wait_dscnt", "s_wait_kmcnt")):
            continue
        (said,) = alarms(gpu, simulator, without(image, place), name, STRICT)
        assert said == "" or re.search(EARLY, said), (place, said)
        found[place.text.split()[0]] += bool(said)
    assert found["s_wait_loadcnt"] and found["s_wait_kmcnt"], found
    barriers = [p for p in places if p.text.startswith("s_barrier_")]
    for signal, wait in zip(barriers[::2], barriers[1::2], strict=True):
        assert (signal.text.split()[0], wait.text.split()[0]) == ("s_barrier_signal", "s_barrier_wait")
        for said in alarms(gpu, simulator, without(image, signal, wait), name, LDS | RANDOM_ORDER, range(6)):
            assert said == "" or re.search(f"{RACE}|{UNWRITTEN}|{OTHER_BITS}|{LEFT}", said), said
            found["barriers"] += bool(said)
    assert found["barriers"], found


def test_a_store_before_its_wait(gpu: GpuBackend, simulator: Simulator) -> None:
    """Of what was loaded: the store itself is named."""
    name = named("concat")
    image = code_object(GFX1201)
    places = list(instructions(image, "concat"))
    store = next(n for n, p in enumerate(places) if p.text.startswith("global_store_b32"))
    wait = [p for p in places[:store] if p.text.startswith("s_wait_loadcnt")][-1]
    (said,) = alarms(gpu, simulator, without(image, wait), name, WAITS)
    assert re.fullmatch(r"kernel call_concat: global_store_b32 at .*reads v\d+ before the s_wait for its load", said)


@pytest.mark.parametrize("start", MANY)
@pytest.mark.parametrize("counters", [1, 0xFFFFFFFF])
def test_counters_that_do_not_start_at_0(start: str, counters: int, gpu: GpuBackend, simulator: Simulator) -> None:
    name = named(start)
    said = alarm(gpu, simulator, code_object(GFX1201), name, *call(name), counters)
    assert said in (LEFT, OTHER_BITS)


@pytest.mark.parametrize("start", [*MANY, *ALONE])
def test_no_alarm_in_any_order(start: str, gpu: GpuBackend, simulator: Simulator) -> None:
    """Every check, waves and workgroups in random order, memory as weak as allowed: numpy's bits."""
    found = list(alarms(gpu, simulator, code_object(GFX1201), named(start), ALL_CHECKS, range(SEEDS)))
    assert found == [""] * SEEDS
