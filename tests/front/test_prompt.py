"""Prompts from texts, files and ids."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrun.core.errors import UsageError
from graphrun.prompt import Prompt, joined, parse_ids, read_text


@given(st.lists(st.integers(0, 2**31), min_size=1), st.sampled_from([",", " ", ", ", "\n", ",\r\n"]))
def test_ids_come_back(ids: list[int], separator: str) -> None:
    assert parse_ids(separator.join(map(str, ids)), "x") == tuple(ids)
    assert parse_ids(joined(ids), "x") == tuple(ids)


@pytest.mark.parametrize("text", ["", " , ", "1;2", "-1", "1.5", "1,x", "0x10", "１", "9" * 30])
def test_other_words_are_no_ids(text: str) -> None:
    with pytest.raises(UsageError, match="^F: "):
        parse_ids(text, "F")


def test_exactly_one_prompt(tmp_path: Path) -> None:
    file = tmp_path / "p.txt"
    file.write_text("from a file", encoding="utf-8")
    assert Prompt.given("text", None, None, None) == Prompt(text="text")
    assert Prompt.given(None, file, None, None) == Prompt(text="from a file")
    assert Prompt.given(None, None, "1 2", None) == Prompt(ids=(1, 2))
    file.write_text("3\n4\n", encoding="utf-8")
    assert Prompt.given(None, None, None, file) == Prompt(ids=(3, 4))
    with pytest.raises(UsageError, match="there is no prompt"):
        Prompt.given(None, None, None, None)
    with pytest.raises(UsageError, match="give one of"):
        Prompt.given("text", None, "1", None)
    with pytest.raises(UsageError, match="the prompt is empty"):
        Prompt.given("", None, None, None)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    with pytest.raises(UsageError, match=r"p\.txt: cannot be read: No such file"):
        read_text(path)
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_text(tmp_path)
    path.write_bytes(b"one\ntwo \xff\n")
    with pytest.raises(UsageError, match=r"p\.txt:2: byte 8 is not UTF-8"):
        read_text(path)
    path.write_bytes("naïve 😀\r\n".encode())
    assert read_text(path) == "naïve 😀\r\n"
