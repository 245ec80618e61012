"""The arena over time, as text and as SVG: which bytes are in use in which segment, and by which value."""

from __future__ import annotations

from html import escape

from graphrun.core.program import Program, Slot

SHADES = " .:-=+*#%@"
BANDS = 24
WIDE, HIGH, MARGIN = 6, 480, 60  # SVG: pixels a segment, pixels of the arena, room for labels
COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f")


def timeline_text(program: Program, width: int = 100) -> str:
    """Rows are bands of offsets, the lowest first; columns are segments, several to one where `width` needs it.

    A cell's shade is the part of it that is in use: blank for none, @ for all.
    """
    label = len(f"{program.arena:x}")
    columns = max(1, min(program.segments, width - label - 2))
    bands = max(1, min(BANDS, program.arena // 256))
    full = program.segments / columns * program.arena / bands
    cells = [[0.0] * columns for _ in range(bands)]
    for slot in program.slots:
        _add(cells, slot, program)
    lines = [_title(program)]
    for band, row in enumerate(cells):
        shades = "".join(SHADES[_shade(cell / full)] for cell in row) if full else ""
        lines.append(f"{band * program.arena // bands:0{label}x}  {shades}".rstrip())
    lines.append(" " * (label + 2) + f"segments 0 to {program.segments - 1}, {program.segments / columns:.1f} a column")
    return "\n".join(lines) + "\n"


def _title(program: Program) -> str:
    share = program.arena / program.bound if program.bound else 1.0
    return (
        f"arena {program.arena} bytes, {len(program.slots)} buffers, {share:.2f} times the least any arena could need"
    )


def _shade(part: float) -> int:
    """Index into SHADES; only an empty cell is blank."""
    steps = len(SHADES) - 1
    return 0 if part <= 0 else max(1, min(steps, round(part * steps)))


def _add(cells: list[list[float]], slot: Slot, program: Program) -> None:
    """Add the bytes times segments of a slot to the cells it covers."""
    tall, wide = program.arena / len(cells), program.segments / len(cells[0])
    for band in range(int(slot.offset / tall), len(cells)):
        height = min((band + 1) * tall, slot.offset + slot.size) - max(band * tall, slot.offset)
        if height <= 0:
            break
        for column in range(int(slot.first / wide), len(cells[0])):
            length = min((column + 1) * wide, slot.last + 1) - max(column * wide, slot.first)
            if length <= 0:
                break
            cells[band][column] += height * length


def timeline_svg(program: Program) -> str:
    """A rectangle for each buffer, segments to the right and offsets upwards; its tooltip names the value."""
    width = MARGIN + max(1, program.segments) * WIDE + 10
    scale = HIGH / max(1, program.arena)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HIGH + 60}"'
        ' font-family="sans-serif" font-size="11">',
        f'<text x="{MARGIN}" y="14">{escape(f"{program.name}: {_title(program)}")}</text>',
        f'<rect x="{MARGIN}" y="20" width="{program.segments * WIDE}" height="{HIGH}" fill="none" stroke="#999"/>',
    ]
    parts += [_rectangle(slot, scale, index) for index, slot in enumerate(program.slots)]
    for segment in range(0, program.segments, 50):
        parts.append(f'<text x="{MARGIN + segment * WIDE}" y="{HIGH + 34}">{segment}</text>')
    for quarter in range(5):
        offset = program.arena * quarter // 4
        y = 20 + HIGH - offset * scale
        parts.append(f'<text x="{MARGIN - 4}" y="{y:.1f}" text-anchor="end">{offset:x}</text>')
    parts.append(f'<text x="{MARGIN}" y="{HIGH + 50}">segments; offsets in hexadecimal</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _rectangle(slot: Slot, scale: float, index: int) -> str:
    value, tall = slot.value, slot.size * scale
    name = f"{value.scope}.{value.name}" if value.scope else value.name
    title = (
        f"{name}: {value.type}, bytes {slot.offset} to {slot.offset + slot.size}, segments {slot.first} to {slot.last}"
    )
    return (
        f'<rect x="{MARGIN + slot.first * WIDE}" y="{20 + HIGH - slot.offset * scale - tall:.2f}"'
        f' width="{(slot.last - slot.first + 1) * WIDE}" height="{tall:.2f}" fill="{COLOURS[index % len(COLOURS)]}"'
        f' fill-opacity="0.8" stroke="#fff" stroke-width="0.5"><title>{escape(title)}</title></rect>'
    )
