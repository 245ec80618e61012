"""GPU kernels beyond the sizes of other tests: heads of odd sizes, rings that wrap, long contexts, and their limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import arguments as made
import kernel_cases
import pytest
from arguments import Case, arguments
from gpu_bench import GpuBench
from handmade import Builder
from kernel_cases import KERNELS, Absorbed, check, check_epilogues
from simulated import gfx1201

from graphrun.backends.gpu import GpuBackend
from graphrun.core.errors import ProgramError
from graphrun.core.ir import Graph, Value
from graphrun.core.op import Kernel, Op
from graphrun.core.target import Target
from graphrun.ops import OPS
from graphrun.ops import delta as delta_ops
from graphrun.planner.lower import lower

GPU, CPU = Target("hip", "gpu", 1 << 34), Target("native", "cpu", 1 << 34)


@pytest.fixture(scope="module")
def gpu() -> Iterator[GpuBackend]:
    with gfx1201() as found:
        yield found


def same(gpu: GpuBackend, name: str, tokens: int, cache: str = "f16") -> None:
    """A kernel's results have numpy's bits, with its epilogues too."""
    op, kernel = named(name)
    case = Case(tokens, "f32", cache, False, 0)
    given = arguments(op, case, seed=tokens)
    bench = GpuBench(op, kernel.name, given)
    bench.run_on(gpu.device, gpu.kernels, kernel)
    check(op, bench, given, case)


def named(name: str) -> tuple[Op, Kernel]:
    return next((op, kernel) for op, kernel in KERNELS.values() if kernel.name == name)


def sized(monkeypatch: pytest.MonkeyPatch, position: int = made.POSITION, **sizes: int) -> None:
    monkeypatch.setattr(made, "SIZES", {**made.SIZES, **sizes})
    monkeypatch.setattr(made, "POSITION", position)


@pytest.mark.parametrize("dim", [2, 30, 34, 64, 80, 128])
@pytest.mark.parametrize(("name", "tokens"), [("delta_rule", 1), ("delta_rule", 3), ("delta_layer", 2)])
def test_delta(name: str, tokens: int, dim: int, gpu: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    sized(monkeypatch, D=dim, U=16 if dim < 64 else 2)
    same(gpu, name, tokens)


@pytest.mark.parametrize("dim", [2, 30, 34, 64, 80, 128])
@pytest.mark.parametrize("tokens", [17, 24])
def test_many_tokens_of_the_delta_rule(tokens: int, dim: int, gpu: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bits of single tokens, which numpy has where it does not solve for segments of them."""
    sized(monkeypatch, D=dim, U=16 if dim < 64 else 2)
    for module in (delta_ops, kernel_cases):
        monkeypatch.setattr(module, "CHUNKED", 1 << 20)
    same(gpu, "delta_chunk", tokens)


@pytest.mark.parametrize(("dim", "heads"), [(34, 16), (272, 2), (288, 9)])
def test_gated_norm_quantises(dim: int, heads: int, gpu: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads that are whole blocks of 32 channels, and heads that are not."""
    sized(monkeypatch, D=dim, U=heads)
    op, kernel = named("gated_norm")

    def run(given: made.Arguments, absorbed: Absorbed) -> GpuBench:
        bench = GpuBench(op, kernel.name, given, absorbed)
        bench.run_on(gpu.device, gpu.kernels, kernel)
        return bench

    check_epilogues(op, kernel, run)


@pytest.mark.parametrize(("taps", "size", "tokens"), [(4, 8, 40), (4, 3, 33), (20, 32, 50), (20, 19, 17), (1, 2, 18)])
def test_convolution_of_many_tokens(
    taps: int, size: int, tokens: int, gpu: GpuBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workgroups share the tokens, and one overwrites what it alone has read of the ring."""
    sized(monkeypatch, position=11, K=taps, S=size)
    same(gpu, "conv_silu", tokens)


@pytest.mark.parametrize(("dim", "position"), [(2, 0), (34, 5), (80, 15), (128, 9), (256, 12)])
@pytest.mark.parametrize(("name", "tokens"), [("attn_split", 1), ("attn_split_t", 3), ("attn_flash", 17)])
def test_attention(
    name: str, tokens: int, dim: int, position: int, gpu: GpuBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    sized(monkeypatch, position=position, D=dim, C=64)
    same(gpu, name, tokens)


@pytest.mark.parametrize(("window", "position"), [(0, 0), (0, 100), (16, 100), (40, 100), (70, 61)])
def test_a_ring_that_wraps(window: int, position: int, gpu: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where more positions are wanted than the ring has: the numpy meaning reads rows again."""
    sized(monkeypatch, position=position, S=32, D=32)
    monkeypatch.setattr(made, "WHOLE", (window,))
    same(gpu, "attend_block", 4)


def test_a_context_of_too_many_parts(gpu: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a workgroup goes over all splits of a head, with the same bits."""
    sized(monkeypatch, position=16400, D=8, H=1, G=1, C=16 + 16400)
    same(gpu, "attn_split_t", 16)


def attention(b: Builder, dim: int, heads: int = 4) -> Value:
    cache = b.state("cache", "f16", 64, heads, dim)
    return b.call("attend", b.input("q", "f32", b.tokens, heads, dim), cache, cache, b.inputs["pos"])


def block(b: Builder, dim: int) -> Value:
    k, cache = b.input("k", "f32", b.tokens, 2, dim), b.state("ring", "f16", 64, 2, dim, discipline="ring")
    return b.call("attend_block", k, k, k, cache, cache, b.inputs["pos"], window=32)


def rule(b: Builder, dim: int) -> Value:
    gate, one = b.input("g", "f32", b.tokens, 1), b.input("dt", "f32", 1)
    s, slot = b.state("s", "f32", 4, 1, dim, dim, discipline="snapshot"), b.input("slot", "i32", 1)
    c = b.input("c", "f32", b.tokens, 3 * dim)
    return b.call("delta_rule", c, gate, gate, one, one, s, b.inputs["pos"], slot, heads=1, eps=1e-6)


def rows(b: Builder, count: int) -> Value:
    return b.call("argmax", b.input("x", "f32", count, 8))


def best(b: Builder, count: int) -> Value:
    return b.call("topk", b.input("x", "f32", count, 8), k=2)


@pytest.mark.parametrize(
    ("make", "tokens", "most", "text"),
    [
        (attention, 1, 256, "attend is beyond what attn_split of GPUs takes: D <= 256 does not hold (D = 257)"),
        (attention, 5, 256, "attend is beyond what attn_split_t of GPUs takes: D <= 256 does not hold (D = 257)"),
        (attention, 20, 256, "attend is beyond what attn_flash of GPUs takes: D <= 256 does not hold (D = 257)"),
        (block, 4, 256, "attend_block is beyond what attend_block of GPUs takes: D <= 256 does not hold (D = 257)"),
        (rule, 1, 128, "delta_rule is beyond what delta_rule of GPUs takes: D <= 128 does not hold (D = 130)"),
        (rule, 20, 128, "delta_rule is beyond what delta_chunk of GPUs takes: D <= 128 does not hold (D = 130)"),
        (rows, 1, 16384, "argmax is beyond what argmax of GPUs takes: R <= 16384 does not hold (R = 16385)"),
        (best, 1, 16384, "topk is beyond what topk of GPUs takes: R <= 16384 does not hold (R = 16385)"),
    ],
)
def test_what_a_gpu_has_no_kernel_for(make: Callable[[Builder, int], Value], tokens: int, most: int, text: str) -> None:
    """The plan is refused, in one line that names the place; other machines take it."""
    beyond = most + 2 if make is rule else most + 1
    for target, size in ((GPU, most), (GPU, beyond), (CPU, beyond)):
        b = Builder(tokens)
        graph = b.graph(y=make(b, size))
        if target is CPU or size == most:
            assert lower(graph, OPS, target).calls[0].kernel.name
            continue
        with pytest.raises(ProgramError) as caught:
            lower(graph, OPS, target)
        assert caught.value.message == f"dir/hand.yaml:1:7: {text}"
        assert "--backend native" in str(caught.value.hint)


def test_too_many_heads() -> None:
    b = Builder(16)
    with pytest.raises(ProgramError, match=r"T \* H <= 16384 does not hold \(H = 1025, T = 16\)"):
        lower(b.graph(y=attention(b, 32, 1025)), OPS, GPU)


def test_a_fused_op_beyond_its_limit_is_not_made() -> None:
    """The convolution and the norm have other limits than the rule between them."""
    names = {}
    for dim in (128, 256):
        graph = linear_attention(dim)
        names[dim] = [c.kernel.name for c in lower(graph, OPS, CPU).calls]
        if dim == 128:
            assert names[dim] == [c.kernel.name for c in lower(graph, OPS, GPU).calls] == ["delta_layer"]
        else:
            with pytest.raises(ProgramError, match="delta_rule of GPUs takes: D <= 128"):
                lower(graph, OPS, GPU)


def linear_attention(dim: int) -> Graph:
    b = Builder()
    x, gate, one = b.input("x", "f32", 1, 3 * dim), b.input("g", "f32", 1, 1), b.input("dt", "f32", 1)
    tail = b.state("tail", "f32", 32, 3 * dim, discipline="ring")
    s, slot = b.state("s", "f32", 4, 1, dim, dim, discipline="snapshot"), b.input("slot", "i32", 1)
    c = b.call("conv_silu", x, b.weight("taps", "f32", 3 * dim, 4), tail, b.inputs["pos"])
    o = b.call("delta_rule", c, gate, gate, one, one, s, b.inputs["pos"], slot, heads=1, eps=1e-6)
    return b.graph(y=b.call("gated_norm", o, b.input("z", "f32", 1, dim), b.input("w", "f32", dim), eps=1e-6))


@pytest.mark.parametrize("tokens", range(1, 17))
def test_attention_asks_for_bounded_memory(tokens: int) -> None:
    """The parts of many tokens take at most the memory of one token over 262144 positions."""
    b = Builder(tokens, context=131072)
    cache = b.state("cache", "f16", 131072, 8, 128)
    q = b.input("q", "f32", tokens, 32, 128)
    (call,) = lower(b.graph(y=b.call("attend", q, cache, cache, b.inputs["pos"])), OPS, GPU).calls
    assert 4 * call.scratch <= 4 * 32 * (262144 // 32) * 130 < 140e6
