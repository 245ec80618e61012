"""The command that inspects GPU kernels: what it counts, planted breaches of limits, and the kernels themselves."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
from conftest import GOLDEN, ROOT, GoldenText
from typer.testing import CliRunner, Result

from graphrun import kernel_report
from graphrun.backends.assembly import Mix, gfx1201_mix, ptx_shared, sm_90_mix
from graphrun.backends.codeobject import Chip, compile_to
from graphrun.backends.hsaco import KernelFacts
from graphrun.cli import app
from graphrun.core.errors import BackendError
from graphrun.kernel_limits import A_BLOCK, Inspected, breaches
from graphrun.kernel_report import TARGETS, Report, as_table, inspect
from graphrun.ops import OPS

NAMES = re.findall(r"KERNEL\((\w+),", (ROOT / "kernels" / "gpu" / "table.h").read_text())
inspected = cache(inspect)
GOOD = KernelFacts("k", 256, 192, 192, 100, 0, 0, 0, 0, 1000)


def call(*args: str) -> Result:
    return CliRunner().invoke(app, ["kernels", *args])


@pytest.mark.parametrize("target", TARGETS)
def test_every_kernel_of_the_table_is_there(target: str) -> None:
    report = inspected(target)
    assert [k.name for k in report.kernels] == NAMES and all(k.mix for k in report.kernels)
    assert report.breaches == [line for k in report.kernels for line in breaches(target, k)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_the_kernels_keep_their_limits(target: str, name: str) -> None:
    (kernel,) = (k for k in inspected(target).kernels if k.name == name)
    assert (kernel.facts is None) == (target == "sm_90")  # where registers are unknown
    assert not list(breaches(target, kernel))


def test_golden(golden_text: GoldenText) -> None:
    name = "kernels.gfx1201.txt"
    text = as_table(inspected("gfx1201")) + "\n"
    compiler = text.splitlines()[0].split(", ")[1]
    if not golden_text.update and compiler not in (GOLDEN / name).read_text(encoding="utf-8").splitlines()[0]:
        pytest.skip(f"registers are another compiler's; this one's is {compiler}")
    golden_text.check(name, text)


@pytest.mark.parametrize("target", TARGETS)
def test_products_of_one_token_have_limits(target: str) -> None:
    products = {k.name for k in OPS["gemv"].kernels if k.tokens == (1, 1)}
    assert products & set(NAMES) == set(A_BLOCK[target])


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"vgprs": 193}, "k: vgprs 193, at most 192"),
        ({"vgpr_spills": 3}, "k: vgpr spills 3, at most 0"),
        ({"sgpr_spills": 1}, "k: sgpr spills 1, at most 0"),
        ({"scratch": 16}, "k: scratch 16, at most 0"),
    ],
)
def test_planted_registers(change: dict[str, int], line: str) -> None:
    fields = {name: getattr(GOOD, name) for name in GOOD.__slots__}
    assert list(breaches("gfx1201", Inspected("k", 0, GOOD))) == []
    assert list(breaches("gfx1201", Inspected("k", 0, KernelFacts(**fields | change)))) == [line]


GEMV = {"gemv_q4_0": {"dot4us": 24, "ld128": 9}, "gemv_q6_k": {"dot4us": 24, "dot4ss": 12, "ld128": 9, "ld64": 3}}
GEMV |= {"gemv_q8_0": {"dot4ss": 24, "ld128": 12}, "gemv_i8_a": {"dot4ss": 36, "ld128": 15}}
PLANTED = [
    ("gemv_q4_0", {"ld128": 6, "ld64": 6}, ["ld128 6, not 3 a weight block (3 in the text)"]),
    ("gemv_q4_0", {"dot4us": 20}, ["dots 20, not 8 a weight block"]),
    ("gemv_q4_0", {"dot4us": 0}, ["dots 0, not 8 a weight block"]),
    (
        "gemv_q4_0",
        {"dot4us": 0, "dot4ss": 24},
        ["dot4us 0, not 8 a weight block (3 in the text)", "dot4ss 24, not 0 a weight block (3 in the text)"],
    ),
    (
        "gemv_q8_0",
        {"dot4ss": 16, "dot4uu": 8},
        ["dot4ss 16, not 8 a weight block (3 in the text)", "dot4uu 8, not 0 a weight block (3 in the text)"],
    ),
    (
        "gemv_q6_k",
        {"dot4us": 12, "dot4ss": 24},
        ["dot4us 12, not 8 a weight block (3 in the text)", "dot4ss 24, not 4 a weight block (3 in the text)"],
    ),
    ("gemv_i8_a", {"ld128": 12}, ["ld128 12, not 5 a weight block (3 in the text)"]),
    ("gemv_i8_a", {"flat": 2}, ["flat instructions 2, at most 0"]),
    ("gemv_q4_0", {"scratch": 1}, ["scratch instructions 1, at most 0"]),
]


@pytest.mark.parametrize(("name", "change", "lines"), PLANTED)
def test_planted_instructions(name: str, change: dict[str, int], lines: list[str]) -> None:
    assert list(breaches("gfx1201", Inspected(name, 0, None, Mix(GEMV[name])))) == []
    found = breaches("gfx1201", Inspected(name, 0, None, Mix(GEMV[name] | change)))
    assert list(found) == [f"{name}: {line}" for line in lines]


def test_planted_ptx() -> None:
    good = {"dp4a.us": 16, "ld.v4": 2, "ld.v2": 8}
    assert list(breaches("sm_90", Inspected("gemv_q4_k", 0, None, Mix(good)))) == []
    found = breaches("sm_90", Inspected("gemv_q4_k", 0, None, Mix(good | {"ld.v4": 0, "local": 1})))
    assert list(found) == [
        "gemv_q4_k: local instructions 1, at most 0",
        "gemv_q4_k: ld.v4 0, not 1 a weight block (2 in the text)",
    ]


ASSEMBLY = """\
	.globl	call_one
call_one:                               ; @call_one
; %bb.0:
	s_load_b128 s[4:7], s[0:1], 0x0
	s_delay_alu instid0(VALU_DEP_1)
.LBB0_1:                                ; =>This Inner Loop
	s_wait_loadcnt 0x0
	v_dual_mov_b32 v1, 0 :: v_dual_and_b32 v0, 31, v0
	v_dot4_i32_iu8 v13, v13, v21, 0 neg_lo:[0,1,0]
	v_dot4_i32_iu8 v13, v13, v21, 0 neg_lo:[1,1,0]
	v_dot4_i32_iu8 v13, v13, v21, v0 neg_lo:[1,0,0]
	v_dot4_i32_iu8 v13, v13, v21, 0
	v_wmma_i32_16x16x16_iu8 v[0:7], v[8:9], v[10:11], v[0:7]
	global_load_b128 v[1:4], v[5:6], off
	global_load_d16_hi_b16 v1, v[5:6], off
	scratch_store_b32 off, v1, off
	flat_load_b32 v1, v[2:3]
	ds_load_b32 v1, v2
	s_barrier_signal -1
	s_cbranch_scc1 .LBB0_1
	s_add_nc_u64 s[0:1], s[0:1], s[4:5]
	s_endpgm
	.section	.rodata
.Lfunc_end0:
	v_mov_b32 v0, 0
"""
PTX = """\
.visible .global .align 4 .b8 gr_table[96] = {111, 110, 101, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 64};
.visible .entry call_one(
	.param .u64 call_one_param_0
)
.maxntid 256
{
	.reg .pred 	%p<4>;
	ld.param.b64 	%rd1, [call_one_param_0];
	@%p1 bra 	$L__BB0_2;
	// begin inline asm
	dp4a.u32.s32 %r1, %r2, %r3, %r1;
	// end inline asm
	ld.global.v4.b32 	{%r1, %r2, %r3, %r4}, [%rd1];
	ld.global.nc.v2.b32 	{%r1, %r2}, [%rd1];
	ld.relaxed.gpu.global.u32 	%r1, [%rd1];
	mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};
	fma.rn.f32 	%f1, %f2, %f3, %f4;
	{ // callseq 0
	st.local.b32 	[%rd1], %r1;
	}
$L__BB0_2:
	ret;
}
	add.s32 	%r1, %r1, 1;
"""


def test_classes_of_instructions() -> None:
    one = "smem hint wait dot4ss dot4uu wmma ld128 ld16 scratch flat lds barrier salu valu".split()
    assert gfx1201_mix(ASSEMBLY) == {"one": Mix(dict.fromkeys(one, 1) | {"dot4us": 2, "branch": 2})}
    with pytest.raises(BackendError, match="no class: image_load v1"):
        gfx1201_mix(ASSEMBLY.replace("flat_load_b32", "image_load"))


def test_classes_of_ptx() -> None:
    one = "param dp4a.us ld.v4 ld.v2 ld.32 mma fma local".split()
    assert sm_90_mix(PTX) == {"one": Mix(dict.fromkeys(one, 1) | {"branch": 2})}
    assert ptx_shared(PTX) == {"one": 16384} and ptx_shared("") == {}


SOURCE = """\
__attribute__((amdgpu_kernel)) void call_add(__attribute__((address_space(1))) int *p) {
  volatile int held[9];
  held[p[1]] = p[2];
  p[0] = held[p[3]];
}
"""


def test_a_breach_is_shown_and_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "k.c").write_text(SOURCE)

    def compiled(chip: Chip, **_: object) -> bytes:
        made = tmp_path / f"k{chip.suffix}"
        compile_to(made, chip, str(tmp_path / "k.c"))
        return made.read_bytes()

    monkeypatch.setattr(kernel_report, "code_object", compiled)
    result = call()
    assert result.exit_code == 1
    wrong = [line for line in result.stdout.splitlines() if line.startswith("beyond a limit: ")]
    assert [line.rsplit(" ", 4)[0] for line in wrong] == [
        f"beyond a limit: add: {w}" for w in ("scratch", "flat instructions")
    ]
    result = call("--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1 and [f"beyond a limit: {line}" for line in found["breaches"]] == wrong
    (kernel,) = found["kernels"]
    assert kernel["name"] == "add" and kernel["registers"]["scratch"] >= 36 and kernel["instructions"]["flat"] >= 2


def test_a_good_kernel_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_report, "inspect", lambda target: Report(target, None, (Inspected("k", 0, GOOD),)))
    result = call()
    assert result.exit_code == 0 and "beyond" not in result.stdout


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel's code object still tells of registers."""
    whole = inspected("gfx1201")
    monkeypatch.setattr(kernel_report, "find_spec", lambda name: None)
    report = inspect("gfx1201")
    assert [k.facts for k in report.kernels] == [k.facts for k in whole.kernels]
    text = as_table(report)
    assert report.classes == [] and "pip install ziglang" in text and text.splitlines()[1].endswith("code")


def test_ptx_has_no_registers() -> None:
    result = call("--target", "sm_90")
    assert "Registers, spills and waves are the driver's choice" in result.stdout and "vgpr" not in result.stdout
    (kernel, *_) = json.loads(call("--target", "sm_90", "--json").stdout)["kernels"]
    assert kernel["registers"] is None and kernel["instructions"]["alu"] > 10


def test_an_unknown_target() -> None:
    result = call("--target", "sm_9")
    assert result.exit_code == 2 and "did you mean 'sm_90'?" in result.stderr
