"""Results of a measurement as Markdown, CSV, JSON, or JSON lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

from graphrun.bench import Report, Row, lines
from graphrun.console import size
from graphrun.core.errors import UsageError, did_you_mean

FORMS = ("md", "csv", "json", "jsonl")


def known_form(form: str) -> None:
    """Raise UsageError for a form that `table` does not know."""
    if form not in FORMS:
        raise UsageError(f"there is no form '{form}'", did_you_mean(form, FORMS) or f"known: {', '.join(FORMS)}")


def table(report: Report, form: str) -> str:
    """The whole text; raises UsageError for an unknown form."""
    known_form(form)
    records = list(lines(report))
    if form == "json":
        return json.dumps(records, indent=2)
    if form == "jsonl":
        return "\n".join(json.dumps(record) for record in records)
    if form == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, list(records[0]), lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        writer.writeheader()
        writer.writerows(records)
        return text.getvalue().rstrip("\n")
    return _markdown(report)


def _markdown(report: Report) -> str:
    head = ["model", "size", "backend", "threads", "test", "t/s", "GB/s", "of limit"]
    verified = any(row.ratio for row in report.rows)
    rows = []
    for row in report.rows:
        cells = [report.model, size(report.nbytes), report.backend, str(report.threads), str(row.setting)]
        cells += [f"{row.median:.2f} ± {row.deviation:.2f}", *share(row)]
        rows.append([*cells, f"{row.ratio:.2f}" if row.ratio else ""] if verified else cells)
    notes = [f"checked: the greedy tokens are numpy's; lowering {step} {value}" for step, value in report.locks.items()]
    if report.limit:
        how = "by the memory's clock" if report.backend in ("cuda", "hip") else "measured"
        notes.append(f"read limit {how}: {report.limit / 1e9:.2f} GB/s")
    if report.barriers:
        notes.append(f"decode waits at {report.barriers[0]} barriers, each {1e6 * report.barriers[1]:.2f} us if idle")
    return "\n".join([markdown([*head, "in decode steps"] if verified else head, rows, 3), "", *notes])


def share(row: Row) -> tuple[str, str]:
    """The weights' GB/s, and their share of the read limit; empty where they are unknown."""
    rate = f"{row.bandwidth / 1e9:.2f}" if row.bandwidth else ""
    return rate, f"{100 * row.share:.0f} %" if row.share else ""


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]], right: int) -> str:
    """A Markdown table with aligned columns, those from number `right` on at their ends."""
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
    rule = ["-" * (w - 1) + ":" if i >= right else "-" * w for i, w in enumerate(widths)]

    def line(cells: Sequence[str]) -> str:
        padded = (c.rjust(w) if i >= right else c.ljust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True)))
        return f"| {' | '.join(padded)} |"

    return "\n".join([line(head), line(rule), *map(line, rows)])
