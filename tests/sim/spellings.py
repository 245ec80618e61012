"""Assembly lines that may spell an opcode of tables.h: several each, of which the assembler takes at least one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from sim import make_tables

BARE = ("SOPP", "SOPK", "SMEM", "DS", "VGLOBAL", "VFLAT", "VSCRATCH")
# Encodings of the manual that LLVM does not assemble for gfx12, or only with registers split in halves.
NOT_ASSEMBLED = {("SMEM", "s_atc_probe"), ("SMEM", "s_atc_probe_buffer"), ("VOP3", "v_readfirstlane_b32")}
NOT_ASSEMBLED |= {("VOP1", "v_mov_b16"), ("VOP3", "v_mov_b16"), ("VOP1", "v_swap_b16")}


def group(kind: str, first: int, halves: int) -> str:
    """v4, s[4:7]."""
    count = (halves + 1) // 2
    return f"{kind}{first}" if count <= 1 else f"{kind}[{first}:{first + count - 1}]"


def lines(form: str, name: str, sizes: list[int], scalar: bool) -> Iterator[str]:
    dst, *src = sizes
    if form in BARE:
        yield from bare(form, name, sizes)
        return
    suffix = {"VOP1": "_e32", "VOP2": "_e32", "VOPC": "_e32", "VOP3": "_e64", "VOP3SD": "_e64"}.get(form, "")
    kind = "s" if form.startswith("SOP") else "v"
    targets = [group("s" if scalar else kind, 8, dst)] if dst and form != "SOPC" else []
    if form == "VOPC" or name.startswith("v_cmpx"):
        targets = ["vcc_lo"] if "cmpx" not in name else []
    carry = ["s3"] if form == "VOP3SD" else ["vcc_lo"] if name.startswith("v_") and "_ci_" in name else []
    full = [size for size in src if size]
    for kinds in itertools.product(kind + ("s" if kind == "v" else ""), repeat=len(full)):
        sources = [group(k, 16 + 16 * n, size) for n, (k, size) in enumerate(zip(kinds, full, strict=True))]
        if form == "VOP2" and "_ci_" in name or name in ("v_cndmask_b32",) and form == "VOP2":
            sources = [*sources[:2], "vcc_lo"]
        for operands in (
            [*targets, *carry, *sources],
            [*targets, *sources, "0x1234"],
            [*targets, *sources[:1], "0x1234", *sources[1:]],
            targets,
            sources,
            [*targets, "sendmsg(MSG_RTN_GET_REALTIME)"],
            ["s8", "-1"],
            ["-1"],
            [],
        ):
            for tail in dict.fromkeys((suffix, "")):
                yield f"{name}{tail} " + ", ".join(operands)


def bare(form: str, name: str, sizes: list[int]) -> Iterator[str]:
    dst, address, data, second = sizes
    if form == "SOPP":
        yield from (name, f"{name} 0", f"{name} 1", f"{name} sendmsg(MSG_INTERRUPT)")
    elif form == "SOPK":
        tails = (
            "s2, 0x1234",
            "s2, hwreg(HW_REG_WAVE_MODE)",
            "hwreg(HW_REG_WAVE_MODE), s2",
            "hwreg(HW_REG_WAVE_MODE), 0x12345",
            "0x1",
        )
        yield from (f"{name} {tail}" for tail in (*tails, "s[2:3], 0x1234"))
    elif form == "SMEM":
        base = group("s", 4, address)
        tails = (f"{group('s', 8, dst)}, {base}, 0x10", "", f"{base}, 0x10, s2, 1", "0x10, s2, 1", f"s2, {base}, 0x10")
        yield from (f"{name} {tail}" for tail in tails)
    elif form == "DS":
        registers = [group("v", 4 + 8 * n, size) for n, size in enumerate((address, data, second)) if size]
        target = [group("v", 40, dst)] if dst else []
        for tail in ("", " offset:16", " offset0:1 offset1:2"):
            yield name + " " + ", ".join([*target, *registers]) + tail
    else:
        target = [group("v", 40, dst)] if dst else []
        source = [group("v", 20, data)] if data else []
        where = ["off"] if form != "VFLAT" else []
        first = group("v", 4, address) if form != "VSCRATCH" else "v4"
        for tail in ("", " offset:16", " th:TH_ATOMIC_RETURN", " scope:SCOPE_DEV"):
            yield name + " " + ", ".join([*target, first, *source, *where]) + tail
            yield name + " " + ", ".join([first, *source, *where]) + tail
            yield name + " " + ", ".join([*target, *where]) + tail
            yield name + " " + ", ".join([*source, *where]) + tail
            yield name + tail


def all_lines() -> list[tuple[str, int, str, str]]:
    """(format, opcode, mnemonic, line), many lines an opcode."""
    found = []
    merged = make_tables.descriptions()
    for form, code, name, _ in make_tables.entries():
        if form == "VOPD":
            found += [(form, code, name, line) for line in pairs(name, code)]
            continue
        sizes, scalar = merged[name]
        found += [(form, code, name, line) for line in dict.fromkeys(lines(form, name, sizes, scalar))]
    return found


def pairs(name: str, code: int) -> Iterator[str]:
    """As the first half where the opcode has room for it, and as the second."""
    dual = "v_dual_" + name[2:]
    operands = {"v_mov_b32": "v4, v5", "v_fmaak_f32": "v4, v5, v7, 0x12345678", "v_fmamk_f32": "v4, v5, 0x12345678, v7"}
    mine = operands.get(name, "v4, v5, v7")
    if code < 16:
        yield f"{dual} {mine} :: v_dual_mov_b32 v9, v2"
    yield f"v_dual_mov_b32 v9, v2 :: {dual} {mine}"
