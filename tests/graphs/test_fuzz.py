"""Damaged graph files: nothing but a GraphError, and never a long wait."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

from small_graph import SMALL, small_header

from graphrun.core.errors import GraphError
from graphrun.core.gguf import ModelFile
from graphrun.graphs.elaborate import check, elaborate
from graphrun.graphs.spec import parse_spec
from graphrun.ops import OPS

ROOT = Path(__file__).resolve().parents[2]
PIECES = """h i n_head ( ) [ ] { } none attention layers rope rows - * // 0 99999999999999999999 1e400 ' " &a *a ! ?
| > # << if else or in {i} : , é""".split()


def damage(data: bytes, rng: random.Random) -> bytes:
    """One to three changes: a byte, a gap, a piece of syntax, a copied stretch, two lines swapped."""
    result = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at, other = rng.randrange(len(result)), rng.randrange(len(result))
        kind = rng.randrange(5)
        if kind == 0:
            result[at] = rng.randrange(256)
        elif kind == 1:
            del result[at : at + rng.randint(1, 8)]
        elif kind == 2:
            result[at:at] = rng.choice(PIECES).encode()
        elif kind == 3:
            result[at:at] = result[other : other + rng.randint(1, 40)]
        else:
            lines = bytes(result).split(b"\n")
            a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
            lines[a], lines[b] = lines[b], lines[a]
            result = bytearray(b"\n".join(lines))
    return bytes(result)


def test_damaged_bytes() -> None:
    rng = random.Random(1)
    source = (ROOT / "graphs" / "llama.yaml").read_bytes()
    good, slowest = 0, 0.0
    with ModelFile.open(ROOT / "tests" / "golden" / "models" / "llama-s.Q4_0.gguf") as file:
        for _ in range(1000):
            start = time.process_time()
            errors = check(damage(source, rng), file, OPS, "llama.yaml")
            slowest = max(slowest, time.process_time() - start)
            assert all(isinstance(e, GraphError) and str(e).startswith("llama.yaml:") for e in errors)
            good += not errors
    assert 5 < good < 500  # comments and spaces can change, little else
    assert slowest < 2.0


def test_damaged_words() -> None:
    """Words replaced by others of the file: mostly valid YAML that means something else."""
    rng = random.Random(2)
    words = sorted(set(re.findall(r"\w+", SMALL))) + ["none", "true", "-1", "1.5", "i", "h", "rows", "layers", "concat"]
    header, good = small_header(), 0
    for _ in range(300):
        text = SMALL
        for _ in range(rng.randint(1, 2)):
            place = rng.choice(list(re.finditer(r"(?<=[ (])\w+(?=[,() ]|$)", text, re.M)))
            text = text[: place.start()] + rng.choice(words) + text[place.end() :]
        errors = check(text, header, OPS, "small.yaml")
        assert all(str(e).startswith("small.yaml:") for e in errors)
        if not errors:
            elaborate(parse_spec(text, "small.yaml"), header, OPS, "decode", 1, context=8).verify()
            good += 1
    assert good >= 1
