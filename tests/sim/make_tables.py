"""Writes tables.h, the opcodes of gfx1201 by format, from tables of AMD's that the package tinygrad carries."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FORMATS = "SOP1 SOP2 SOPC SOPK SOPP SMEM VOP1 VOP2 VOPC VOP3 VOP3SD VOP3P VOPD DS VGLOBAL VFLAT VSCRATCH".split()
DESTINATIONS = ("vdst", "sdst", "vdsty", "sdata")
SOURCES: tuple[tuple[str, ...], ...] = (
    ("src0", "vsrc0", "ssrc0", "srcy0", "addr", "vaddr", "sbase"),
    ("src1", "vsrc1", "ssrc1", "vsrcy1", "data0", "vsrc", "soffset"),
    ("src2", "data1"),
)
SCALAR = ("OPR_SREG", "OPR_SDST", "OPR_SREG_M0", "OPR_EXEC", "OPR_SREG_NOVCC")


def mnemonic(enum_name: str) -> str:
    name = re.sub(r"_e(32|64)$", "", enum_name.lower())
    return name.replace("v_dual_", "v_")


def halves(operand: tuple[Any, int, Any]) -> int:
    """Size of an operand in units of 16 bits; lane masks have 32 bits in a wave of 32."""
    fmt, bits, _ = operand
    return 2 if fmt.name == "FMT_NUM_M64" else (bits + 15) // 16


def entries() -> Iterator[tuple[str, int, str, dict[str, Any]]]:
    """(format, opcode, mnemonic, operands) of each instruction."""
    enums = importlib.import_module("tinygrad.runtime.autogen.amd.rdna4.enum")
    operands = importlib.import_module("tinygrad.runtime.autogen.amd.rdna4.operands").OPERANDS
    for form in FORMATS:
        for op in getattr(enums, form + "Op"):
            if form == "VFLAT" and op.name.startswith("GLOBAL"):
                continue  # listed there by mistake
            yield form, op.value, mnemonic(op.name), operands.get(op, {})


def describe(fields: dict[str, Any]) -> tuple[list[int], bool]:
    """Sizes of destination and three sources, and whether the destination is an SGPR."""
    found = next((fields[name] for name in DESTINATIONS if name in fields), None)
    sizes = [halves(found) if found else 0]
    for names in SOURCES:
        sizes.append(next((halves(fields[name]) for name in names if name in fields), 0))
    return sizes, bool(found and found[2].name in SCALAR)


def descriptions() -> dict[str, tuple[list[int], bool]]:
    """`describe` by mnemonic, of all its encodings together."""
    info: dict[str, tuple[list[int], bool]] = {}
    for _, _, name, fields in entries():
        sizes, scalar = describe(fields)
        old = info.get(name, ([0] * 4, False))
        info[name] = ([max(pair) for pair in zip(sizes, old[0], strict=True)], scalar or old[1])
    return info


def tables() -> str:
    by_format: dict[str, dict[int, str]] = {form: {} for form in FORMATS}
    for form, code, name, _ in entries():
        by_format[form][code] = name
    info = descriptions()
    names = sorted(info)
    lines = ["// Opcodes of gfx1201: make_tables.py wrote this.", "#pragma once", "#include <stdint.h>", ""]
    lines += ["enum {", "  OP_NONE,", *[f"  OP_{name}," for name in names], "  OP_COUNT", "};", ""]
    lines += ["// Sizes in units of 16 bits of the destination and the sources (memory: address, data, second data);"]
    lines += ["// 0: there is none. A scalar destination is an SGPR, a lane mask, VCC or EXEC."]
    lines += ["typedef struct { const char *name; uint8_t dst, src[3], scalar_dst; } op_description;"]
    lines += ["static const op_description OPS[OP_COUNT] = {", '  [OP_NONE] = {"illegal", 0, {0, 0, 0}, 0},']
    for name in names:
        (dst, *src), scalar = info[name]
        lines.append(f'  [OP_{name}] = {{"{name}", {dst}, {{{", ".join(map(str, src))}}}, {int(scalar)}}},')
    lines += ["};", ""]
    for form in FORMATS:
        lines.append(f"static const uint16_t {form}_OPS[{max(by_format[form]) + 1}] = {{")
        lines += [f"  [{code}] = OP_{name}," for code, name in sorted(by_format[form].items())]
        lines += ["};"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("tables.h")).write_text(tables())
