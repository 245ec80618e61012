"""Results of a measurement as Markdown, CSV, JSON, or JSON lines."""

from __future__ import annotations

import csv
import io
import json

from graphrun.bench import Report, lines
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
    head = ("model", "size", "backend", "threads", "test", "t/s", "GB/s", "of limit")
    rows = []
    for row in report.rows:
        rate = f"{row.bandwidth / 1e9:.2f}" if row.bandwidth else ""
        share = f"{100 * row.bandwidth / report.limit:.0f} %" if row.bandwidth and report.limit else ""
        speed = f"{row.median:.2f} ± {row.deviation:.2f}"
        known = (report.model, size(report.nbytes), report.backend, str(report.threads))
        rows.append((*known, str(row.setting), speed, rate, share))
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
    rule = ["-" * (w - 1) + ":" if i >= 3 else "-" * w for i, w in enumerate(widths)]

    def line(cells: tuple[str, ...] | list[str]) -> str:
        padded = (c.rjust(w) if i >= 3 else c.ljust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True)))
        return f"| {' | '.join(padded)} |"

    notes = [f"checked: the greedy tokens are numpy's; lowering {step} {value}" for step, value in report.locks.items()]
    if report.limit:
        notes.append(f"read limit measured: {report.limit / 1e9:.2f} GB/s")
    return "\n".join([line(head), line(rule), *map(line, rows), "", *notes])
