"""What compiled GPU kernels must keep to: registers, memory, and the instructions of a product's inner loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from graphrun.backends.assembly import Mix
from graphrun.backends.hsaco import KernelFacts

# The most of each, for every kernel. With 192 VGPRs two workgroups share a compute unit. Spilled SGPRs go to lanes of
# VGPRs, so they cost instructions and no memory.
MOST: Mapping[str, int] = {"vgprs": 192, "vgpr_spills": 0, "sgpr_spills": 0, "scratch": 0}
NEVER = {"gfx1201": ("scratch", "flat"), "sm_90": ("local",)}  # classes of instructions that no kernel has


DOTS, LOADS = {"gfx1201": "dot4", "sm_90": "dp4a."}, {"gfx1201": "ld128", "sm_90": "ld.v4"}


def _block(target: str, loads: int, unsigned: int = 0, signed: int = 0) -> Mapping[str, int]:
    dot = DOTS[target]
    return {f"{dot}us": unsigned, f"{dot}ss": signed, f"{dot}uu": 0, LOADS[target]: loads}


# Instructions for 32 weights in products of one token, by kernel: 8 dots of 4 bytes, unsigned for weights in nibbles,
# 4 more where the activations of a half are summed, and 128-bit loads: of weights and, on gfx1201, two of activations.
A_BLOCK: Mapping[str, Mapping[str, Mapping[str, int]]] = {
    target: {
        "gemv_q4_0": _block(target, 1 + others, unsigned=8),
        "gemv_q4_1": _block(target, 1 + others, unsigned=8),
        "gemv_q4_k": _block(target, 1 + others, unsigned=8),
        "gemv_q6_k": _block(target, 1 + others, unsigned=8, signed=4),
        "gemv_q8_0": _block(target, 2 + others, signed=8),
        "gemv_i8_a": _block(target, 3 + others, signed=8 + 4),
    }
    for target, others in (("gfx1201", 2), ("sm_90", 0))
}


@dataclass(frozen=True, slots=True)
class Inspected:
    """A kernel of a target, its bytes of shared memory, and of the rest what is known."""

    name: str
    lds: int
    facts: KernelFacts | None = None
    mix: Mix = field(default_factory=Mix)


def breaches(target: str, kernel: Inspected) -> Iterator[str]:
    """A line for each limit that a kernel does not keep; what is not known keeps them."""
    for name, most in MOST.items():
        if kernel.facts is not None and (found := getattr(kernel.facts, name)) > most:
            yield f"{kernel.name}: {name.replace('_', ' ')} {found}, at most {most}"
    for name in NEVER[target]:
        if count := kernel.mix[name]:
            yield f"{kernel.name}: {name} instructions {count}, at most 0"
    if kernel.mix and kernel.name in A_BLOCK[target]:
        yield from _wrong_block(kernel.name, kernel.mix, A_BLOCK[target][kernel.name])


def _wrong_block(name: str, mix: Mix, wanted: Mapping[str, int]) -> Iterator[str]:
    """Every class must be there for the same number of weight blocks, which all dots together tell."""
    dots = [kind for kind in wanted if kind not in LOADS.values()]
    found, each = sum(mix[kind] for kind in dots), sum(wanted[kind] for kind in dots)
    blocks, rest = divmod(found, each)
    if rest or not blocks:
        yield f"{name}: dots {found}, not {each} a weight block"
        return
    for kind, count in wanted.items():
        if mix[kind] != count * blocks:
            yield f"{name}: {kind} {mix[kind]}, not {count} a weight block ({blocks} in the text)"
