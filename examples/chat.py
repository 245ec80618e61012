"""A chat loop over the library: python examples/chat.py [MODEL.gguf], or the demo model."""

from __future__ import annotations

import sys

import graphrun
from graphrun.generate import Generation
from graphrun.hub import resolve
from graphrun.sampling import Sampling


def main() -> None:
    model = graphrun.load(resolve(sys.argv[1] if len(sys.argv) > 1 else "demo"))
    messages: list[dict[str, str]] = []
    while (text := input("> ")) != "/exit":
        messages.append({"role": "user", "content": text})
        ids = model.chat.encode(messages)
        answer = ""
        for piece in Generation(model.session(), ids, max_tokens=256, sampling=Sampling()):
            print(piece, end="", flush=True)
            answer += piece
        print()
        messages.append({"role": "assistant", "content": answer})


if __name__ == "__main__":
    main()
