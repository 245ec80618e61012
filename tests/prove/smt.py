"""Terms as SMT-LIB scripts over bit vectors."""

from __future__ import annotations

from .term import Term, walk

_OPS = {
    "add": "bvadd",
    "sub": "bvsub",
    "mul": "bvmul",
    "and": "bvand",
    "or": "bvor",
    "xor": "bvxor",
    "shl": "bvshl",
    "shr": "bvlshr",
    "div": "bvudiv",
    "mod": "bvurem",
    "lt": "bvult",
    "le": "bvule",
    "eq": "=",
    "not": "not",
    "ite": "ite",
    "load": "select",
}
_SORTS = {"u32": "(_ BitVec 32)", "bool": "Bool", "mem": "(Array (_ BitVec 32) (_ BitVec 32))"}


def constant(t: Term) -> str:
    """A literal."""
    return ("true" if t.value else "false") if t.sort == "bool" else f"(_ bv{t.value} 32)"


def bit_vectors(t: Term) -> str:
    """A script that asserts an expanded condition."""
    lines = ["(set-logic QF_ABV)"]
    names: dict[int, str] = {}
    for x in walk(t):
        if x.op == "const":
            names[x.uid] = constant(x)
        elif x.op == "var":
            names[x.uid] = f"|{x.value}|"
            lines.append(f"(declare-const |{x.value}| {_SORTS[x.sort]})")
        else:
            op = x.op if x.sort == "bool" and x.op in ("and", "or") else _OPS[x.op]
            names[x.uid] = f"t{x.uid}"
            operands = " ".join(names[a.uid] for a in x.args)
            lines.append(f"(define-fun t{x.uid} () {_SORTS[x.sort]} ({op} {operands}))")
    return "\n".join([*lines, f"(assert {names[t.uid]})", ""])
