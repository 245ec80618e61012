"""Perplexity of a text file, in segments: python examples/perplexity.py MODEL.gguf TEXT [SEGMENT=512].

The second half of each segment is scored, as llama-perplexity does, and the segments are pooled.
"""

from __future__ import annotations

import sys
from pathlib import Path

import graphrun
from graphrun.hub import resolve
from graphrun.perplexity import Perplexity, perplexity


def main() -> None:
    model_name, text, *rest = sys.argv[1:]
    length = int(rest[0]) if rest else 512
    model = graphrun.load(resolve(model_name), context=length)
    ids = model.tokenizer.encode(Path(text).read_text(encoding="utf-8"))
    total = Perplexity(tokens=0, nll=0.0)
    for start in range(0, len(ids) - length + 1, length):
        segment = perplexity(model.session(), ids[start : start + length], first=length // 2)
        total = Perplexity(total.tokens + segment.tokens, total.nll + segment.nll)
        print(total, flush=True)


if __name__ == "__main__":
    main()
