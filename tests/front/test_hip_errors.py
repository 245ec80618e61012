"""What a user of AMD GPUs is told where something is missing: one line, and how to get it."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from graphrun import backends, doctor
from graphrun.backends import codeobject
from graphrun.backends.device import NoDevice
from graphrun.backends.hip import HipDevice
from graphrun.cli import app
from graphrun.core.errors import BackendError

NO_DEVICE, OUT_OF_MEMORY, ILLEGAL = 100, 2, 700


class Bindings:
    """hip-python on a system with GPUs of these architectures; a function named in `errors` fails with that code."""

    hipMemcpyKind = SimpleNamespace(hipMemcpyHostToDevice=1, hipMemcpyDeviceToHost=2)

    def __init__(self, architectures: tuple[str, ...] = ("gfx1201",), **errors: int | str) -> None:
        self.architectures, self.errors = architectures, errors
        self.chosen: list[int] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> tuple[Any, ...]:
            error = self.errors.get(name, 0)
            if isinstance(error, str):
                raise RuntimeError(error)
            return (error, *self._results(name, arguments))

        return call

    def hipGetErrorString(self, error: int) -> tuple[int, bytes]:
        texts = {NO_DEVICE: b"no ROCm-capable device is detected", OUT_OF_MEMORY: b"out of memory"}
        return 0, texts.get(error, b"an illegal memory access was encountered")

    def _results(self, name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        if name == "hipGetDeviceCount":
            return (len(self.architectures),)
        if name == "hipGetDeviceProperties":
            return (
                SimpleNamespace(
                    name=b"Radeon", gcnArchName=self.architectures[arguments[0]].encode(), multiProcessorCount=4
                ),
            )
        if name == "hipSetDevice":
            self.chosen += arguments
        return {"hipMemGetInfo": (1 << 30, 2 << 30), "hipMalloc": (4096,), "hipModuleLoadData": (1,)}.get(name, ())


def install(monkeypatch: pytest.MonkeyPatch, hip: Bindings | None) -> None:
    """Have hip-python be these bindings; None hides it."""
    package = None
    if hip is not None:
        package = ModuleType("rocm.bindings")
        package.hip = hip  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "rocm", ModuleType("rocm"))
    monkeypatch.setitem(sys.modules, "rocm.bindings", package)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)


CASES = {
    "no package": (None, "needs the package hip-python", "graphrun[hip]"),
    "no library": (Bindings(hipGetDeviceCount="failed to dlopen"), "libamdhip64.so was not found", "ROCM_PATH"),
    "no device": (Bindings(hipGetDeviceCount=NO_DEVICE), "sees no AMD GPU (no ROCm-capable", "rocminfo"),
    "none counted": (Bindings(()), "sees no AMD GPU", "/dev/kfd"),
    "another target": (Bindings(("gfx1100:sramecc-",)), "number 0 is a gfx1100; the hip backend has", "native"),
}


@pytest.mark.parametrize("case", CASES)
def test_no_device_is_one_line_with_a_hint(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hip, message, hint = CASES[case]
    install(monkeypatch, hip)
    with pytest.raises(NoDevice) as caught:
        backends.open("hip")
    assert message in caught.value.message and hint in str(caught.value.hint)
    result = CliRunner().invoke(app, ["run", "demo", "--backend", "hip", "-p", "x"])
    lines = result.stderr.splitlines()
    assert result.exit_code == 1 and result.stdout == ""
    assert lines == [f"error: {caught.value.message}", f"  hint: {caught.value.hint}"]


@pytest.mark.parametrize("case", CASES)
def test_auto_passes_over_it_in_silence(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, CASES[case][0])
    said: list[str] = []
    assert backends.open("auto", threads=1, say=said.append).target.name == "native"
    assert not [line for line in said if not line.startswith("compiling")]


def test_auto_says_why_a_device_that_is_there_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Bindings(hipModuleLoadData=ILLEGAL))
    monkeypatch.setattr(codeobject, "code_object", lambda *_, **__: b"")
    said: list[str] = []
    assert backends.open("auto", threads=1, say=said.append).target.name == "native"
    assert [line for line in said if "hip" in line] == [
        "the hip backend is not used: hipModuleLoadData: an illegal memory access was encountered"
    ]


def test_the_first_of_its_kind_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    hip = Bindings(("gfx1036", "gfx1201:xnack-", "gfx1201"))
    install(monkeypatch, hip)
    device = HipDevice()
    assert hip.chosen == [1] and device.description == "Radeon (gfx1201)"
    assert device.target.name == "hip" and device.target.memory == 1 << 30
    with pytest.raises(NoDevice, match="there is no AMD GPU number 3: ROCm sees 3"):
        HipDevice(3)
    with pytest.raises(NoDevice, match="number 0 is a gfx1036"):
        HipDevice(0)


def test_memory_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Bindings(hipMalloc=OUT_OF_MEMORY))
    with pytest.raises(BackendError, match=r"5.00 GB more do not fit the GPU, 1.07 GB are free \(hipMalloc") as caught:
        HipDevice().allocate(5 * 10**9)
    assert "-c" in str(caught.value.hint)


def test_errors_of_calls_and_functions_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Bindings(hipMemcpy=ILLEGAL, hipMemset="failed to dlsym"))
    device = HipDevice()
    with pytest.raises(BackendError, match="^hipMemcpy: an illegal memory access was encountered$"):
        device.upload(4096, np.zeros(4, np.uint8))
    with pytest.raises(BackendError, match="libamdhip64.so has no hipMemset"):
        device.clear(4096, 4)


def test_doctor_says_what_is_missing_and_stays_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, None)
    found = list(doctor.findings())
    lines = {f.what: f for f in found if f.what in ("hip", "cuda")}
    assert not any(f.ok or f.needed for f in lines.values()) and len(lines) == 2
    assert "hip-python" in str(lines["hip"]) and "graphrun[hip]" in str(lines["hip"])
    assert doctor.healthy(found)
