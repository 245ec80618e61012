"""Terms read over the integers: linear SMT-LIB in which products of unknowns are unknowns related by lemmas.

`Reading.value` gives the integer expression of a term. It is the machine's value only if no operation leaves
0 .. 2^32-1 and no divisor is 0; `Reading.obligations` says so, each under the conditions that C would have tested.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from .smt import constant
from .term import Term

# {ac} stands for the product of a and c; each lemma holds for all integers.
LEMMAS = {
    "sign": "(=> (and (<= 0 {a}) (<= 0 {c})) (<= 0 {ac}))",
    "at_most": "(=> (and (<= {a} {k}) (<= 0 {c})) (<= {ac} (* {k} {c})))",
    "at_least": "(=> (and (<= {k} {a}) (<= 0 {c})) (<= (* {k} {c}) {ac}))",
    "monotone": "(=> (and (<= {a} {b}) (<= 0 {c})) (<= {ac} {bc}))",
    "below": "(=> (and (<= (+ {a} 1) {b}) (<= 0 {c})) (<= (+ {ac} {c}) {bc}))",
    "next": "(=> (= (+ {a} 1) {b}) (= (+ {ac} {c}) {bc}))",
    "scale": "(=> (= {a} (* {k} {b})) (= {ac} (* {k} {bc})))",
}


class Reading:
    """The integer reading of a law: declarations, facts, products, and what must hold for it to be the machine's."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.facts: list[str] = []
        self.products: dict[tuple[str, str], str] = {}
        self.quotients: dict[tuple[str, str], tuple[str, str]] = {}
        self.bounds: set[int] = {(1 << 32) - 1}
        self.scales: set[int] = set()
        self.demands: dict[int, str] = {}  # by term: the result fits, the divisor is positive
        self.text: dict[int, str] = {}

    def fresh(self, prefix: str) -> str:
        """A new unknown."""
        name = f"{prefix}{len(self.names)}"
        self.names.append(name)
        return name

    def named(self, expression: str) -> str:
        """An unknown equal to the expression, or the expression if it is a name or number already."""
        if not expression.startswith("("):
            return expression
        name = self.fresh("d")
        self.facts.append(f"(= {name} {expression})")
        return name

    def product(self, x: str, y: str) -> str:
        """The unknown that stands for x*y."""
        key = (min(x, y), max(x, y))
        if key not in self.products:
            self.products[key] = self.fresh("p")
        return self.products[key]

    def value(self, t: Term) -> str:
        """The integer expression, or condition, that a term is."""
        if t.uid not in self.text:
            self.text[t.uid] = self._condition(t) if t.sort == "bool" else self._word(t)
        return self.text[t.uid]

    def _condition(self, t: Term) -> str:
        if t.op == "const":
            return constant(t)
        self.bounds |= {a.value for a in t.args if a.op == "const" and a.sort == "u32" and a.value > 1}
        op = {"lt": "<", "le": "<=", "eq": "="}.get(t.op, t.op)
        return f"({op} {' '.join(self.value(a) for a in t.args)})"

    def _word(self, t: Term) -> str:
        if t.op == "const":
            return str(t.value)
        if t.op == "var":
            name = f"v_{t.value}"
            self.names.append(name)
            self.facts += [f"(<= 0 {name})", f"(< {name} {1 << 32})"]
            return name
        if t.op == "ite":
            return f"(ite {' '.join(self.value(a) for a in t.args)})"
        x, y = (self.value(a) for a in t.args)
        known = t.args[1].value if t.args[1].op == "const" else None
        if t.op in ("add", "sub", "mul") or (t.op == "shl" and known is not None):
            result = self.named(self._ring(t, x, y))
            self.demands[t.uid] = f"(and (<= 0 {result}) (< {result} {1 << 32}))"
            return result
        return self._division(t, x, y, known)

    def _ring(self, t: Term, x: str, y: str) -> str:
        if t.op == "shl":
            return f"(* {1 << int(y)} {x})"
        if t.op != "mul":
            return f"({'+' if t.op == 'add' else '-'} {x} {y})"
        linear = any(a.op == "const" for a in t.args)
        return f"(* {x} {y})" if linear else self.product(self.named(x), self.named(y))

    def _division(self, t: Term, x: str, y: str, known: int | None) -> str:
        if known is not None and t.op == "and" and known & (known + 1) == 0:
            return f"(mod {x} {known + 1})"
        divisor = 1 << known if known is not None and t.op == "shr" else known
        if divisor and t.op in ("shr", "div"):
            self.scales.add(divisor)
            return self.named(f"(div {x} {divisor})")
        if divisor and t.op == "mod":
            return f"(mod {x} {divisor})"
        if t.op not in ("div", "mod"):
            raise NotImplementedError(t.op)
        x, y = self.named(x), self.named(y)
        if (x, y) not in self.quotients:
            self.quotients[x, y] = self.fresh("q"), self.fresh("m")
        quotient, rest = self.quotients[x, y]
        self.product(quotient, y)
        self.demands[t.uid] = f"(< 0 {y})"
        return quotient if t.op == "div" else rest

    def obligations(self, t: Term, path: tuple[str, ...] = ()) -> Iterator[str]:
        """What must hold for the reading of t, under the conditions to its left."""
        if t.uid in self.demands:
            yield f"(=> (and true {' '.join(path)}) {self.demands[t.uid]})"
        if t.op in ("and", "or") and t.sort == "bool":
            left = self.value(t.args[0])
            yield from self.obligations(t.args[0], path)
            yield from self.obligations(t.args[1], (*path, left if t.op == "and" else f"(not {left})"))
        elif t.op == "ite":
            test = self.value(t.args[0])
            yield from self.obligations(t.args[0], path)
            yield from self.obligations(t.args[1], (*path, test))
            yield from self.obligations(t.args[2], (*path, f"(not {test})"))
        else:
            for a in t.args:
                yield from self.obligations(a, path)

    def complete(self) -> None:
        """Add the products of every row-like with every column-like factor, which the lemmas need to meet."""
        quotients = {q for q, _ in self.quotients.values()}
        rows: set[str] = set()
        columns = {y for x, y in self.products if x in quotients} | {x for x, y in self.products if y in quotients}
        for x, y in sorted(self.products):
            if x in columns or y in rows:
                x, y = y, x
            rows.add(x)
            columns.add(y)
        for x, y in itertools.product(sorted(rows - columns), sorted(columns)):
            self.product(x, y)

    def lemmas(self) -> list[str]:
        """Every instance of a lemma for the products that occur."""
        made: list[str] = []
        for (x, y), p in self.products.items():
            for a, c in ((x, y), (y, x)):
                made.append(LEMMAS["sign"].format(a=a, c=c, ac=p))
                for k in sorted(self.bounds):
                    made += [LEMMAS[n].format(a=a, c=c, ac=p, k=k) for n in ("at_most", "at_least")]
        for ((x, y), p), ((z, w), q) in itertools.permutations(self.products.items(), 2):
            for (a, c), (b, d) in itertools.product(((x, y), (y, x)), ((z, w), (w, z))):
                if c == d:
                    made += [LEMMAS[n].format(a=a, b=b, c=c, ac=p, bc=q) for n in ("monotone", "below", "next")]
                    made += [LEMMAS["scale"].format(a=a, b=b, c=c, ac=p, bc=q, k=k) for k in sorted(self.scales)]
        return list(dict.fromkeys(made))

    def divisions(self) -> list[str]:
        """What quotients and rests by unknowns are."""
        return [
            f"(=> (and (<= 0 {x}) (< 0 {y})) "
            f"(and (<= 0 {q}) (<= 0 {m}) (< {m} {y}) (= {x} (+ {self.product(q, y)} {m}))))"
            for (x, y), (q, m) in self.quotients.items()
        ]

    def script(self, *conditions: str) -> str:
        """A script with all facts and lemmas, and these conditions."""
        declared = [f"(declare-const {name} Int)" for name in dict.fromkeys(self.names)]
        known = [f"(assert {f})" for f in dict.fromkeys(self.facts + self.divisions() + self.lemmas())]
        return "\n".join(["(set-logic ALL)", *declared, *known, *(f"(assert {c})" for c in conditions), ""])

    def audits(self) -> list[str]:
        """One script per kind of lemma or division instance, with real products and quotients, that must be unsat."""
        real = {p: f"(* {x} {y})" for (x, y), p in self.products.items()}
        whole: dict[str, str] = {}
        for (x, y), (q, m) in self.quotients.items():
            whole[q], whole[m] = f"(div {x} {y})", f"(mod {x} {y})"
        instances = [_put(lemma, "p", real) for lemma in self.lemmas()]
        instances += [_put(_put(division, "p", real), "[qm]", whole) for division in self.divisions()]
        return list(dict.fromkeys(map(_general, instances)))


def _put(text: str, prefix: str, values: dict[str, str]) -> str:
    return re.sub(rf"\b{prefix}\d+\b", lambda m: values[m[0]], text)


def _general(instance: str) -> str:
    """A script for the instance with every unknown, and every number above 1, any integer.

    Instances of one kind become one script, and what is proved is stronger than each of them.
    """
    name = r"\b(?:[dqm]\d+|v_\w+|[2-9]|[1-9]\d+)\b"
    general = {found: f"x{i}" for i, found in enumerate(dict.fromkeys(re.findall(name, instance)))}
    instance = re.sub(name, lambda m: general[m[0]], instance)
    declared = "".join(f"(declare-const {x} Int)\n" for x in general.values())
    return f"(set-logic ALL)\n{declared}(assert (not {instance}))\n"
