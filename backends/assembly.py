"""Instructions of each kernel by class, counted in a compiler's text: assembly for gfx1201, PTX for sm_90."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile

from graphrun.backends.codeobject import GFX1201, SM_90, Chip
from graphrun.backends.hsaco import PREFIX, TABLE, shared_of
from graphrun.core.errors import BackendError

LISTING = Chip(GFX1201.name, (*(f for f in GFX1201.flags if f != "-c"), "-S"), ".s")  # the code object as text

Mix = Counter[str]
Rules = Sequence[tuple[str, re.Pattern[str]]]


def _rules(table: Mapping[str, str]) -> Rules:
    return [(name, re.compile(pattern)) for name, pattern in table.items()]


# The first class whose pattern matches the beginning of an instruction. Loads are those of global memory by bits; dots
# of four bytes are by their operands' signs.
GFX1201_CLASSES = _rules(
    {
        "hint": r"s_(?:delay_alu|wait_alu|clause|nop|code_end|sched|set_inst_prefetch|version|inst_prefetch)",
        "wait": r"s_wait",
        "barrier": r"s_barrier|global_inv|global_wb",
        "branch": r"s_c?branch|s_endpgm|s_setpc|s_swappc",
        "smem": r"s_(?:buffer_)?load|s_prefetch|s_dcache",
        "salu": r"s_",
        "dot4us": r"v_dot4_i32_iu8(?=.*neg_lo:\[(?:0,1|1,0),)",
        "dot4ss": r"v_dot4_i32_iu8(?=.*neg_lo:\[1,1,)",
        "dot4uu": r"v_dot4_",
        "wmma": r"v_wmma|v_swmmac",
        "valu": r"v_",
        "ld128": r"global_load_b128",
        "ld96": r"global_load_b96",
        "ld64": r"global_load_b64",
        "ld32": r"global_load_b32",
        "ld16": r"global_load_(?:u16|i16|d16)",
        "ld8": r"global_load_[ui]8",
        "store": r"global_store",
        "atomic": r"global_atomic",
        "lds": r"ds_",
        "scratch": r"scratch_",
        "flat": r"flat_|buffer_",
    }
)
SM_90_CLASSES = _rules(
    {
        "dp4a.us": r"dp4a\.u32\.s32",
        "dp4a.ss": r"dp4a\.s32\.s32",
        "dp4a.uu": r"dp4a",
        "mma": r"mma|wgmma",
        "fma": r"fma\.",
        "ld.v4": r"ld\.(?:[\w:]+\.)*v4",
        "ld.v2": r"ld\.global\.(?:\w+\.)*v2",
        "ld.64": r"ld\.global\.(?:\w+\.)*[bsuf]64",
        "ld.32": r"ld\.(?:\w+\.)*global\.(?:\w+\.)*[bsuf]32",
        "ld.16": r"ld\.global\.(?:\w+\.)*[bsuf]16",
        "ld.8": r"ld\.global\.(?:\w+\.)*[bsu]8",
        "st": r"st\.(?:\w+\.)*global",
        "shared": r"(?:ld|st)\.shared",
        "local": r"(?:ld|st)\.local",
        "param": r"ld\.param",
        "atom": r"atom|red\.",
        "shfl": r"shfl",
        "sync": r"bar\.|barrier|fence|membar",
        "branch": r"bra|brx|ret|call|exit",
        "alu": r"[a-z]\w*\.|[a-z]\w*$",
    }
)
NO_CODE = re.compile(r"[.;}){(/$%]|\w+:")
GFX1201_LABEL, GFX1201_END = re.compile(rf"{PREFIX}(\w+):"), ".Lfunc_end"
SM_90_LABEL, SM_90_END = re.compile(rf"\.visible \.entry {PREFIX}(\w+)\("), "}"
PREDICATE = re.compile(r"@!?%\w+\s+")


def gfx1201_mix(text: str) -> dict[str, Mix]:
    """Instructions of every kernel of an assembly text; those that issue two operations count once.

    Raises BackendError for an instruction of no class.
    """
    return _mix(text, GFX1201_LABEL, GFX1201_END, _classify(GFX1201_CLASSES, GFX1201))


def sm_90_mix(text: str) -> dict[str, Mix]:
    """Instructions of every kernel of a PTX text, which is what a driver's assembler is given, not what it makes."""
    return _mix(text, SM_90_LABEL, SM_90_END, _classify(SM_90_CLASSES, SM_90))


def _mix(text: str, label: re.Pattern[str], end: str, classify: Callable[[str], str]) -> dict[str, Mix]:
    lines = iter(text.splitlines())
    found: dict[str, Mix] = {}
    for line in lines:
        if match := label.match(line):
            body = takewhile(lambda inner: not inner.startswith(end), lines)
            found[match[1]] = Counter(map(classify, _instructions(body)))
    return found


def _instructions(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        stripped = PREDICATE.sub("", line.strip())
        if stripped and line[:1].isspace() and not NO_CODE.match(stripped):
            yield stripped


def _classify(rules: Rules, chip: Chip) -> Callable[[str], str]:
    def class_of(instruction: str) -> str:
        for name, pattern in rules:
            if pattern.match(instruction):
                return name
        raise BackendError(f"an instruction of {chip.name} belongs to no class: {instruction.split(';')[0]}")

    return class_of


TABLE_BYTES = re.compile(rf"{TABLE}\[(\d+)\] = \{{([\d, ]*)\}}")


def ptx_shared(text: str) -> dict[str, int]:
    """The bytes of shared memory that the table of kernels in a PTX text asks for, by kernel; none without a table."""
    match = TABLE_BYTES.search(text)
    if match is None:
        return {}
    raw = bytes(int(part) for part in match[2].split(",")).ljust(int(match[1]), b"\0")
    return shared_of(raw)
