"""The core as a C11 header. The printer is not trusted: `creader` reads its result back and it is proved equal.

`python -m tests.prove.header` writes kernels/ie_core.h.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphrun.core.ie import FUNCTIONS
from graphrun.core.u32 import Fn

from .term import Term, body, parameters, walk

PATH = Path(__file__).parents[2] / "kernels" / "ie_core.h"
TYPES = {"u32": "u32", "bool": "bool", "mem": "const u32 *"}
SIGNS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "and": "&",
    "or": "|",
    "xor": "^",
    "shl": "<<",
    "shr": ">>",
    "div": "/",
    "mod": "%",
    "lt": "<",
    "le": "<=",
    "eq": "==",
}
WIDTH = 118
HARDWARE = {"ie_dot4_us": "IE_DOT4_US", "ie_dot4_ss": "IE_DOT4_SS"}
TOP = """\
/* The verified integer core in C, generated from core/ie.py: `python -m tests.prove.header`. Do not edit.
   u32 wraps; arrays are read only; a shift count is below 32 and a divisor is not 0 where the laws' premises hold.
   IE_FN may be defined before, and IE_DOT4_US(acc, a, b) and IE_DOT4_SS(acc, a, b) as the instructions of a target. */
#ifndef IE_CORE_H
#define IE_CORE_H
#include <stdbool.h>
#ifndef IE_FN
#define IE_FN static inline
#endif
typedef unsigned int u32;
"""


def kernel_functions() -> list[Fn[Any]]:
    """The functions that a kernel can call: those without a fuel."""
    return [fn for fn in FUNCTIONS if "Fuel" not in fn.kinds]


def header() -> str:
    """The whole file."""
    return "\n".join([TOP, *map(_function, kernel_functions()), "#endif\n"])


def _function(fn: Fn[Any]) -> str:
    result = body(fn)
    params = [f"{TYPES[t.sort]}{'' if t.sort == 'mem' else ' '}{t.value[1:]}" for t in parameters(fn)]
    lines, names = _shared(result)
    code = "\n".join([*lines, f"  return {_expression(result, names, top=True)};"])
    if fn.name in HARDWARE:
        macro = HARDWARE[fn.name]
        code = f"#ifdef {macro}\n  return {macro}({', '.join(fn.params)});\n#else\n{code}\n#endif"
    kind = {"int": "u32"}.get(fn.result, "bool")
    comment = (fn.__doc__ or "").strip()
    head = f"IE_FN {kind} {fn.name}({', '.join(params) or 'void'}) {{"
    short = f"{head} {code.strip()} }}"
    if "\n" not in short and len(short) <= WIDTH:
        return f"/* {comment} */\n{short}\n"
    return f"/* {comment} */\n{_wrapped(head)}\n{_wrapped(code)}\n}}\n"


def _wrapped(code: str) -> str:
    """Lines broken at spaces, so that none is longer than the width."""
    return "\n".join(textwrap.fill(line, WIDTH, subsequent_indent=" " * 6) for line in code.splitlines())


def _shared(result: Term) -> tuple[list[str], dict[int, str]]:
    """Declarations for what occurs more than once, in bodies that evaluate everything."""
    order = walk(result)
    if any(t.op == "ite" or (t.sort == "bool" and t.op in ("and", "or")) for t in order):
        return [], {}
    uses: dict[int, int] = {}
    for t in order:
        for a in t.args:
            uses[a.uid] = uses.get(a.uid, 0) + 1
    lines: list[str] = []
    names: dict[int, str] = {}
    for t in order:
        if t.args and t.sort == "u32" and uses.get(t.uid, 0) > 1:
            name = f"t{len(lines)}"
            lines.append(f"  const u32 {name} = {_expression(t, names, top=True)};")
            names[t.uid] = name
    return lines, names


def _expression(t: Term, names: Mapping[int, str], top: bool = False) -> str:
    if t.uid in names:
        return names[t.uid]
    if t.op == "const":
        if t.sort == "bool":
            return "true" if t.value else "false"
        return f"0x{t.value:08X}u" if t.value >= 1 << 16 else f"{t.value}u"
    if t.op == "var":
        return str(t.value[1:])
    if t.op in ("load", "call"):
        inner = [_expression(a, names, top=True) for a in t.args]
        return f"{inner[0]}[{inner[1]}]" if t.op == "load" else f"{t.value.name}({', '.join(inner)})"
    parts = [_expression(a, names) for a in t.args]
    if t.op == "not":
        return f"!{parts[0]}"
    if t.op == "ite":
        text = f"{parts[0]} ? {parts[1]} : {parts[2]}"
    elif t.sort == "bool" and t.op in ("and", "or"):
        text = f"{parts[0]} {'&&' if t.op == 'and' else '||'} {parts[1]}"
    else:
        text = f"{parts[0]} {SIGNS[t.op]} {parts[1]}"
    return text if top else f"({text})"


if __name__ == "__main__":
    PATH.write_text(header(), encoding="utf-8")
