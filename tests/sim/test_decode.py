"""The decoder against LLVM's assembler, the compiler's listing of our kernels, and the decoder of tinygrad."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim import gpu_code, simulator
from sim.gpu_code import mnemonic
from sim.simulator import VCC, Instruction, Registers

FORMATS = "NONE SOP1 SOP2 SOPC SOPK SOPP SMEM VOP1 VOP2 VOPC VOP3 VOP3SD VOP3P VOPD DS VGLOBAL VFLAT VSCRATCH".split()
Kernels = tuple[dict[str, bytes], dict[str, list[str]]]


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    return gpu_code.kernels()


def walk(code: bytes) -> list[tuple[int, int, str]]:
    """(offset, size, text) of each instruction; an illegal one fails the test."""
    found, at = [], 0
    while at < len(code):
        size, text, _ = simulator.decode(code, at)
        assert size, f"no instruction at {at:#x}: {code[at : at + 16].hex()}"
        found.append((at, size, text))
        at += size
    assert at == len(code)
    return found


def test_kernels_decode_as_the_compiler_lists_them(kernels: Kernels) -> None:
    code, listed = kernels
    assert code and code.keys() == listed.keys()
    for name, body in code.items():
        assert [mnemonic(text) for _, _, text in walk(body)] == listed[name], name


def test_scalar_instructions_of_the_kernels_are_modelled(kernels: Kernels) -> None:
    seen: dict[str, bytes] = {}
    for body in kernels[0].values():
        for at, size, text in walk(body):
            _, _, fields = simulator.decode(body, at)
            if FORMATS[fields.format].startswith("SOP"):
                seen.setdefault(mnemonic(text), body[at : at + size])
    assert "s_endpgm" in seen
    seen["s_barrier_wait"] = seen["s_barrier_signal"] + seen["s_barrier_wait"]  # a wave alone passes its own barrier
    for code in seen.values():
        simulator.run(code, simulator.Machine())


def test_kernels_decode_as_tinygrad_says(kernels: Kernels) -> None:
    decode = pytest.importorskip("tinygrad.renderer.amd").decode_inst
    seen: set[bytes] = set()
    for body in kernels[0].values():
        for at, size, text in walk(body):
            word = body[at : at + 4]
            if word in seen:
                continue
            seen.add(word)
            other = decode(body[at : at + 24], "rdna4")
            assert other.size() == size, text
            if "::" not in text:
                name = str(other.op_name if hasattr(other, "op_name") else other.op.name)
                assert mnemonic(name.split(".")[-1].lower()) == mnemonic(text)


def test_every_opcode_is_what_the_assembler_makes_of_its_name() -> None:
    pytest.importorskip("tinygrad")
    from sim import spellings

    wanted = spellings.all_lines()
    confirmed: set[tuple[str, str]] = set()
    for (form, _, name, line), code in zip(wanted, simulator.try_assemble([w[3] for w in wanted]), strict=True):
        if code is None:
            continue
        size, text, fields = simulator.decode(code)
        assert size == len(code), line
        assert name in mnemonic(text).replace("v_dual_", "v_").split("+"), (line, text)
        if FORMATS[fields.format] == form:
            confirmed.add((form, name))
    assert {(form, name) for form, _, name, _ in wanted} - confirmed == spellings.NOT_ASSEMBLED


def test_tables_are_what_the_generator_writes() -> None:
    pytest.importorskip("tinygrad")
    from sim import make_tables

    assert Path(simulator.HERE / "tables.h").read_text() == make_tables.tables()


SAME_TEXT = """
s_mov_b64 s[2:3], exec
s_add_co_u32 s1, vcc_lo, -16
s_and_b32 m0, 0x12345678, s4
s_cselect_b32 s1, 1.0, ttmp9
s_load_b128 s[4:7], s[0:1], 0x10
s_load_b512 s[16:31], s[2:3], s5 offset:0x20
v_add_f32 v1, v2, v3
v_fma_f32 v1, -v2, |v3|, 2.0
v_mul_f32 v1, s3, v3 clamp mul:2
v_fmaak_f32 v1, v2, v3, 0x40490fdb
v_cmp_lt_f32 vcc_lo, v1, v2
v_cmp_lt_u32 s3, v1, v2
v_cndmask_b32 v1, v2, v3, vcc_lo
v_add_co_u32 v1, s2, v3, v4
v_add_co_ci_u32 v1, vcc_lo, v3, v4, vcc_lo
v_mad_co_u64_u32 v[2:3], null, v4, v5, v[6:7]
v_lshlrev_b64 v[2:3], 3, v[6:7]
v_readlane_b32 s1, v2, s3
v_dot4_i32_iu8 v1, v2, v3, v4 op_sel:0 op_sel_hi:7 neg_lo:3 neg_hi:0
v_wmma_i32_16x16x16_iu8 v[0:7], v[8:9], v[10:11], v[0:7]
v_dual_mul_f32 v0, v1, v2 :: v_dual_mov_b32 v3, v4
v_dual_fmac_f32 v5, s1, v2 :: v_dual_add_f32 v2, v1, v4
global_load_b128 v[0:3], v4, s[2:3] offset:16
global_load_b64 v[0:1], v[4:5], off offset:-8
global_store_b96 v[4:5], v[6:8], off
global_atomic_add_u32 v4, v5, s[2:3] offset:4
scratch_load_b32 v1, off, s3 offset:8
ds_store_2addr_b32 v0, v1, v2 offset0:1 offset1:3
ds_load_b128 v[4:7], v0 offset:64
"""


def spell(line: str) -> str:
    """As the assembler writes the modifiers of packed instructions."""
    return line.replace(" op_sel:0 op_sel_hi:7 neg_lo:3 neg_hi:0", " neg_lo:[1,1,0]")


@pytest.mark.parametrize("line", SAME_TEXT.strip().split("\n"))
def test_text_is_the_assemblers(line: str) -> None:
    code = simulator.assemble_all(tuple(spell(text) for text in SAME_TEXT.strip().split("\n")))[spell(line)]
    size, text, _ = simulator.decode(code)
    assert (size, text) == (len(code), line)


def pairs(lists: list[Registers]) -> list[tuple[int, int]]:
    return [(entry.reg, entry.count) for entry in lists if entry.count]


def touched(fields: Instruction) -> tuple[list[tuple[int, int]], list[tuple[int, int]], int, int]:
    return pairs(list(fields.reads)), pairs(list(fields.scalar_reads)), fields.writes, fields.scalar_writes


@pytest.mark.parametrize(
    ("line", "reads", "scalars", "writes", "scalar_writes"),
    [
        ("v_fmac_f32 v1, v2, v3", [(2, 1), (3, 1), (1, 1)], [], 1, 0),
        ("v_add_f32 v1, s2, v3", [(3, 1)], [(2, 1)], 1, 0),
        ("v_cmp_lt_f32 s3, v1, v2", [(1, 1), (2, 1)], [], 0, 1),
        ("v_cndmask_b32 v1, v2, v3, vcc_lo", [(2, 1), (3, 1)], [(VCC, 1)], 1, 0),
        ("v_readfirstlane_b32 s4, v9", [(9, 1)], [], 0, 1),
        ("v_mad_co_u64_u32 v[2:3], s5, v4, s7, v[6:7]", [(4, 1), (6, 2)], [(7, 1)], 2, 1),
        ("v_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[12:15], v[0:7]", [(8, 4), (12, 4), (0, 8)], [], 8, 0),
        ("v_dual_fmac_f32 v5, s1, v2 :: v_dual_add_f32 v2, v1, v4", [(2, 1), (1, 1), (4, 1), (5, 1)], [(1, 1)], 1, 0),
        ("global_load_b128 v[0:3], v4, s[2:3]", [(4, 1)], [(2, 2)], 4, 0),
        ("global_store_b64 v[4:5], v[6:7], off", [(4, 2), (6, 2)], [], 0, 0),
        ("global_atomic_add_u32 v4, v5, s[2:3]", [(4, 1), (5, 1)], [(2, 2)], 0, 0),
        ("global_atomic_cmpswap_b32 v1, v4, v[6:7], s[2:3] th:TH_ATOMIC_RETURN", [(4, 1), (6, 2)], [(2, 2)], 1, 0),
        ("scratch_store_b32 off, v6, s3", [(6, 1)], [(3, 1)], 0, 0),
        ("scratch_load_b32 v1, v2, off", [(2, 1)], [], 1, 0),
        ("ds_store_2addr_b64 v0, v[2:3], v[4:5] offset1:1", [(0, 1), (2, 2), (4, 2)], [], 0, 0),
        ("ds_load_u8_d16_hi v7, v0", [(0, 1), (7, 1)], [], 1, 0),
        ("s_load_b256 s[8:15], s[2:3], s5 offset:0", [], [(2, 2), (5, 1)], 0, 8),
        ("s_fmac_f32 s1, s2, 1.0", [], [(2, 1), (1, 1)], 0, 1),
        ("s_mul_u64 s[2:3], s[4:5], vcc", [], [(4, 2), (VCC, 2)], 0, 2),
    ],
)
def test_registers_that_an_instruction_touches(
    line: str, reads: list[tuple[int, int]], scalars: list[tuple[int, int]], writes: int, scalar_writes: int
) -> None:
    _, _, fields = simulator.decode(simulator.assemble(line))
    assert touched(fields) == (reads, scalars, writes, scalar_writes)


@pytest.mark.parametrize("words", [(0xFFFFFFFF, 0), (0xC4000000, 0), (0xD7FF0000, 0), (0x7E00FE00,), (0xBE80FF00,)])
def test_what_is_no_instruction_has_no_size(words: tuple[int, ...]) -> None:
    assert simulator.decode(b"".join(word.to_bytes(4, "little") for word in words))[0] == 0


def test_an_instruction_ends_before_the_code_does() -> None:
    code = simulator.assemble("v_add_f32 v1, 0x12345678, v2")
    assert simulator.decode(code)[0] == 8
    assert simulator.decode(code[:4])[0] == 0


def test_register_tuples_end_before_v256() -> None:
    code = bytearray(simulator.assemble("global_load_b128 v[252:255], v4, s[2:3]"))
    assert simulator.decode(bytes(code))[0] == 12
    code[4] = 253
    assert simulator.decode(bytes(code))[0] == 0
