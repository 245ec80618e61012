"""Errors to exit codes, aligned columns, sizes, files written whole, progress bars."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from graphrun.console import Commands, Stream, columns, printable, replacing, size
from graphrun.core.errors import BackendError, GraphrunError, ModelError, UsageError
from graphrun.progress import Bar


def command(error: BaseException | None) -> typer.Typer:
    app = typer.Typer(cls=Commands, pretty_exceptions_enable=False)

    @app.callback()
    def group() -> None:
        pass

    @app.command()
    def go() -> None:
        print("before")
        if error is not None:
            raise error

    return app


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (None, 0, ""),
        (ModelError("m.gguf", "header", "is wrong"), 1, "error: m.gguf: header: is wrong\n"),
        (BackendError("no device", "plug it in"), 1, "error: no device\n  hint: plug it in\n"),
        (UsageError("makes no sense"), 2, "error: makes no sense\n"),
        (GraphrunError("escape \x1b[2J"), 1, "error: escape \\x1b[2J\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_exit_codes(error: BaseException | None, code: int, message: str) -> None:
    result = CliRunner().invoke(command(error), ["go"])
    assert (result.exit_code, result.stdout, result.stderr) == (code, "before\n", message)


def test_a_bug_keeps_its_exception() -> None:
    result = CliRunner().invoke(command(ZeroDivisionError("bug")), ["go"])
    assert isinstance(result.exception, ZeroDivisionError)


@given(st.text())
def test_printable_text_drives_no_terminal(text: str) -> None:
    shown = printable(text)
    assert all(c.isprintable() or c == "\n" for c in shown)
    if text.isprintable():
        assert shown == text


@given(st.lists(st.tuples(st.text("ab", max_size=5), st.text("01", max_size=5)), min_size=1))
def test_columns_align(rows: list[tuple[str, str]]) -> None:
    lines = columns([("name", "count"), *rows], right=(1,)).split("\n")
    assert len(lines) == len(rows) + 1
    width = max(len(first) for first, _ in [("name", ""), *rows])
    for line, (first, second) in zip(lines[1:], rows, strict=True):
        assert line[:width].rstrip() == first and line[width:].strip() == second
        assert not second or len(line) == width + 2 + 5


@pytest.mark.parametrize(
    ("nbytes", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (17_300_000, "17.3 MB"), (24 * 10**9, "24.0 GB")]
)
def test_size(nbytes: int, text: str) -> None:
    assert size(nbytes) == text


def test_stream_ends_an_open_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Stream() as show:
        show("half a")
        show(" line")
    with Stream() as show:
        show("whole line\n")
    with Stream():
        pass
    with pytest.raises(KeyboardInterrupt), Stream() as show:
        show("cut")
        raise KeyboardInterrupt
    assert capsys.readouterr().out == "half a line\nwhole line\ncut\n"


class TestReplacing:
    def test_appears_whole(self, tmp_path: Path) -> None:
        path = tmp_path / "out.txt"
        with replacing(path) as file:
            file.write("new")
            assert not path.exists()
        assert path.read_text() == "new"
        assert list(tmp_path.iterdir()) == [path]

    def test_failure_keeps_the_old_file(self, tmp_path: Path) -> None:
        path = tmp_path / "out.txt"
        path.write_text("old")
        with pytest.raises(ModelError), replacing(path) as file:
            file.write("half of the new")
            raise ModelError("m", "", "broke")
        assert path.read_text() == "old"
        assert list(tmp_path.iterdir()) == [path]

    def test_a_link_stays_a_link(self, tmp_path: Path) -> None:
        path, link = tmp_path / "out.txt", tmp_path / "link"
        link.symlink_to(path)
        with replacing(link) as file:
            file.write("new")
        assert link.is_symlink() and path.read_text() == "new"

    @pytest.mark.skipif(not os.path.exists("/dev/null"), reason="there is no /dev/null on this system")
    def test_a_device_is_written_not_replaced(self) -> None:
        with replacing(Path("/dev/null")) as file:
            file.write("gone")
        assert not Path("/dev/null").is_file()

    @pytest.mark.parametrize("name", ["missing/out.txt", "."])
    def test_an_impossible_place(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(UsageError, match="cannot be written"), replacing(tmp_path / name):
            pass


class TestBar:
    def test_silent_in_a_pipe(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setattr("graphrun.progress.PATIENCE", 0.0)
        with Bar("loading") as bar:
            bar(1, 10)
            time.sleep(0.05)
        assert capsys.readouterr() == ("", "")

    @pytest.mark.parametrize(("patience", "shown"), [(0.0, True), (60.0, False)])
    def test_on_a_terminal_only_after_a_while(
        self, monkeypatch: pytest.MonkeyPatch, patience: float, shown: bool
    ) -> None:
        terminal = Terminal()
        monkeypatch.setattr("graphrun.progress.PATIENCE", patience)
        monkeypatch.setattr("sys.stderr", terminal)
        monkeypatch.setenv("TERM", "xterm")
        with Bar("loading", in_bytes=True) as bar:
            bar(1, 10)
            deadline = time.monotonic() + 10 * shown
            while "loading" not in terminal.getvalue() and time.monotonic() < deadline:
                time.sleep(0.01)
            bar(10, 10)
            after = terminal.getvalue()
            bar(10, 10)
        assert ("loading" in after) == shown
        assert terminal.getvalue() == after, "a finished bar must not write into what follows"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True
