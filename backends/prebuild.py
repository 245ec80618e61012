"""Wheels with compiled kernels inside: the build backend of this package, and setuptools' command that adds them.

An isolated build has setuptools and perhaps ziglang, nothing else that graphrun imports.
"""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from sysconfig import get_platform
from types import ModuleType
from typing import Any

from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)
from setuptools.command.bdist_wheel import bdist_wheel

__all__ = [
    "Wheel",
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ROOT = Path(__file__).resolve().parent.parent
PREBUILT = Path("graphrun", "kernels", "prebuilt")


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """A wheel is compiled for; an editable install compiles at the first use."""
    return ["ziglang>=0.15"]


class Wheel(bdist_wheel):
    """A wheel for any Python 3 on this platform, with the libraries of all its instruction sets and kernels for GPUs.

    Without a compiler it is a pure one, and says so.
    """

    platform: str | None = None  # of the libraries inside, None while there are none

    def run(self) -> None:
        folder = Path(self.get_finalized_command("build_py").build_lib) / PREBUILT
        shutil.rmtree(folder, ignore_errors=True)  # of older sources
        self.platform = self._compile(folder)
        super().run()  # type: ignore[no-untyped-call]

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", self.platform) if self.platform else super().get_tag()

    def write_wheelfile(self, *args: Any, **options: Any) -> None:
        self.root_is_pure = self.platform is None  # only now: modules lie where those of a pure wheel do
        super().write_wheelfile(*args, **options)

    def _compile(self, folder: Path) -> str | None:
        """Fill the folder; returns the platform that the libraries run on."""
        build, codeobject, failure = _builder()
        try:
            units = (build.ENGINE, *build.SETS)
            tool = build.compiler()
            with ThreadPoolExecutor() as threads:
                libraries = list(threads.map(build.library, units))
                wanted = [(c, s) for c in codeobject.CHIPS for s in codeobject.SOURCES if tool.zig]
                images = list(threads.map(codeobject.code_object, *zip(*wanted, strict=True))) if wanted else []
        except failure as error:
            self.warn(f"this wheel has no compiled kernels: {error}")
            return None
        folder.mkdir(parents=True)
        for unit, library in zip(units, libraries, strict=True):
            shutil.copyfile(library, folder / build.shipped_name(unit))
        for (chip, source), image in zip(wanted, images, strict=True):
            (folder / codeobject.shipped_name(chip, source)).write_bytes(image)
        portable: tuple[str, str] | None = build.portable() if tool.zig else None
        return portable[1] if portable else get_platform().replace("-", "_").replace(".", "_")


def _builder() -> tuple[Any, Any, type[Exception]]:
    """graphrun.backends.build, codeobject and their error, from this tree, without what packages above it import."""
    for name, folder in (("graphrun", ROOT), ("graphrun.backends", ROOT / "backends")):
        if name not in sys.modules:
            bare = ModuleType(name)
            bare.__path__ = [str(folder)]
            sys.modules[name] = bare
    from graphrun.backends import build, codeobject
    from graphrun.core.errors import BackendError

    return build, codeobject, BackendError
