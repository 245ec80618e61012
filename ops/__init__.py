"""OPS: every op defined in this directory, by name."""

from __future__ import annotations

import importlib
import pkgutil

from graphrun.core.op import Op


def _collect() -> dict[str, Op]:
    found: dict[str, Op] = {}
    for module in pkgutil.iter_modules(__path__):
        for value in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if isinstance(value, Op) and found.setdefault(value.name, value) is not value:
                raise ValueError(f"op {value.name} is defined twice")
    return dict(sorted(found.items()))


OPS = _collect()
