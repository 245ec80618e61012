"""The process that renders a chat template under limits of memory and processor time, one request a line."""

from __future__ import annotations

import json
import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from graphrun.provenance import runs
from graphrun.template import Renderer, explain

MEMORY = 128 << 20
SECONDS = 0.6
LONGEST_TEXT = 8 << 20


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer JSON lines until the input ends; after running out of memory, answer with "last" and stop."""
    limit_memory()
    known: dict[str, Renderer] = {}
    for line in requests:
        limit_seconds(SECONDS)
        try:
            data, last = json.dumps(answer(json.loads(line), known)), False
        except MemoryError:
            known.clear()
            data, last = json.dumps({"error": f"it needs more than {MEMORY >> 20} MB of memory", "last": True}), True
        limit_seconds(0)
        replies.write(data.encode() + b"\n")
        replies.flush()
        if last:
            return


def answer(request: dict[str, Any], known: dict[str, Renderer]) -> dict[str, Any]:
    """{"pieces": [[text, written by the template], ...]} or {"error": line}; raises MemoryError."""
    source = request["template"]
    try:
        if source not in known:
            known.clear()
            known[source] = Renderer(source)
        text = known[source].render(request["variables"], request["tokens"], datetime.fromisoformat(request["now"]))
    except MemoryError:
        raise
    except Exception as error:
        return {"error": explain(error)}
    if len(text) > LONGEST_TEXT:
        return {"error": f"it writes {len(text)} characters, more than {LONGEST_TEXT}"}
    return {"pieces": list(runs(text))}


def limit_memory() -> None:
    """Let this process grow by MEMORY; systems without address space limits have none."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        size = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
    except (ImportError, OSError, ValueError):
        return


def limit_seconds(seconds: float) -> None:
    """Let the kernel end this process after so much processor time, also inside a C function; 0 lifts the limit."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
