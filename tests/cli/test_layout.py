"""Folding and truncation of lines to the width of a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from memrecall.text.terminal import cut_line, flatten, indent, wrap

MIXED = (
    "数据库配置：PostgreSQL 16，跑在 10.0.3.12 的 5433 端口（主库）。See /etc/app/conf.d/ for more."
)


def plain(lines: list[Text]) -> list[str]:
    return [line.plain for line in lines]


@pytest.mark.parametrize("width", [10, 24, 40, 79])
def test_fold_breaks_between_chinese_characters(width: int) -> None:
    lines = plain(wrap(Text(MIXED), width))
    assert max(map(cell_len, lines)) <= width
    assert "".join(lines).replace(" ", "") == MIXED.replace(" ", "")
    assert not any(line[0] in "，。；：、）" for line in lines)
    assert not any(line[-1] in "（「" for line in lines)


@given(st.text(alphabet="ab 中文，。（）\n/🙂", max_size=80), st.integers(4, 30))
def test_fold_keeps_all_characters_except_spaces(text: str, width: int) -> None:
    lines = plain(wrap(Text(text), width))
    assert "".join("".join(lines).split()) == "".join(text.split())
    closed = [line.rstrip("，。）") for line in lines]  # punctuation may hang over
    assert all(cell_len(line) <= width for line in closed)


def test_indent_does_not_style_text_like_margin() -> None:
    first, second = indent([Text("one", "green"), Text("two")], 4, Text("1", "bold"))
    assert (first.plain, second.plain) == ("1   one", "    two")
    assert [(span.start, span.end, span.style) for span in first.spans] == [
        (0, 1, "bold"),
        (4, 7, "green"),
    ]
    assert not first.style
    assert not second.spans


def test_truncate_adds_ellipsis() -> None:
    assert cut_line(Text("数据库配置"), 7).plain == "数据库…"
    assert cut_line(Text("short"), 7).plain == "short"
    assert flatten("a\n\tb\x1b[31m\u202e") == "a b�[31m�"
