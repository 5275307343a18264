"""Random documents: the visible text and the leaks do not depend on the chunks."""

from collections.abc import Iterable
from typing import TypedDict, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memrecall.text import LeakFilter, filter_leaks
from memrecall.text.leaks.calls import MAX_JSON_LENGTH
from memrecall.text.leaks.catalog import LeakMode, Reasoning
from memrecall.text.leaks.filter import MAX_FORMAT_LENGTH
from tests.text.leak_cases import CASES, TOOLS, stream

pytestmark = pytest.mark.texts

PROSE = [
    *(". ", "。", ": ", "1. ", "\n\n", "\n    ", "\n\n    x", "\t", "The plan", "我们昨天"),
    *("说好了。", "a", "c", "to", "analysis", "it's", " ", "  ", "\n", "\r\n"),
]
CODE = ["`", "``", "```", "```json\n", "\n```\n", "~~~", "\n~~~\n", "- ", "> ", "\\", "x < y", "{}"]
MARKS = [
    *("<", ">", "</", "<|", "|>", "｜", "[", "]", "{", "}", '"', "'", ":", ",", "(", ")", "="),
    "&lt;",
]
WORDS = [
    *("tool_call", "tool_calls>", "function=", "invoke name=", "DSML", "TOOL_CALLS", "name"),
    *("tool", "arguments", "search_memory", "is_mentioned", "functions.", "commentary", " to="),
    *("assistant", "final", "channel", "message", "start", "end", "think", "functools", "Action:"),
    *("open", "sep"),
]
PIECES = [
    *("<tool_call>", "</tool_call>", "<function=f>", "<parameter=p>", "</parameter>", "</invoke>"),
    *('<invoke name="f">', "<|channel|>", "<|message|>", "<|end|>", "<|start|>assistant"),
    *("<|call|>", "Ġ", "\\n", "[TOOL_CALLS]", "<|python_tag|>", "｜DSML｜", "<｜DSML｜invoke"),
    *("```tool_code\n", "<think>", "</think>", "[THINK]", "[/THINK]", "<arg_key>k</arg_key>"),
    *("]<]minimax[>[", '{"name": "', '{"arguments": {"a": [1, "}"]}, ', '"type": "function", '),
    *('"search_memory"', "<｜tool▁calls▁begin｜>", "<|open|>response<|sep|>", "assistantfinal"),
    *("functions.search_memory", "analysisWe need", "analysis\n打", "search_memory(query="),
    *("is_mentioned()", "](", " returns", '[{"search_memory": {'),
    *('```\n{"name": "search_memory", "arguments": {}}\n```\n', "[ARGS]{"),
    *("</s>", "<s>", "<|im_end|>", "<eos>", "[e~[", "\n```<|im_end|>", "`is_mentioned('x')`"),
    *("<|channel|>commentary<|message|>Wait.<|end|>", "<|channel|>final<|message|>", "表示", "”"),
]


@st.composite
def case_parts(draw: st.DrawFn) -> str:
    """Generate a part of a collected or written case."""
    text = draw(st.sampled_from(CASES)).text
    start = draw(st.integers(0, len(text)))
    return text[start : start + draw(st.integers(1, 60))]


FRAGMENTS = st.one_of(
    *(st.sampled_from(kind) for kind in (PROSE, CODE, MARKS, WORDS, PIECES)), case_parts()
)
DOCUMENTS = st.lists(FRAGMENTS, max_size=30).map("".join)


class Mode(TypedDict):
    """The settings of a filter."""

    reasoning: Reasoning
    mode: LeakMode


MODES: st.SearchStrategy[Mode] = st.builds(
    Mode, reasoning=st.sampled_from(get_args(Reasoning)), mode=st.sampled_from(get_args(LeakMode))
)
NAMES = st.sampled_from([TOOLS, ()])


@st.composite
def cut_documents(draw: st.DrawFn) -> list[str]:
    """Generate a document in chunks, some of them empty."""
    text = draw(DOCUMENTS)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=40)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@settings(max_examples=150)
@given(cut_documents(), NAMES, MODES)
def test_chunk_borders_do_not_matter(chunks: list[str], tools: tuple[str, ...], mode: Mode) -> None:
    check_cuts(chunks, tools, mode)


def check_cuts(chunks: Iterable[str], tools: tuple[str, ...], mode: Mode) -> None:
    text = "".join(chunks)
    assert stream(LeakFilter(tools, **mode), chunks) == filter_leaks(text, tools, **mode)


@pytest.mark.long
@settings(max_examples=30_000)
@given(cut_documents(), NAMES, MODES)
def test_chunk_borders_do_not_matter_in_many_documents(
    chunks: list[str], tools: tuple[str, ...], mode: Mode
) -> None:
    check_cuts(chunks, tools, mode)


@settings(max_examples=60)
@given(DOCUMENTS, NAMES, MODES)
def test_single_character_chunks_do_not_matter(
    text: str, tools: tuple[str, ...], mode: Mode
) -> None:
    check_cuts(text, tools, mode)


@settings(max_examples=60)
@given(DOCUMENTS, st.text(max_size=20), MODES)
def test_visible_text_is_retracted_only_by_a_stray_end(
    text: str, continuation: str, mode: Mode
) -> None:
    leaks = LeakFilter(TOOLS, **mode)
    visible_before, had_retracted = leaks.feed(text), leaks.has_retracted
    leaks.feed(continuation)
    leaks.close()
    visible, _ = filter_leaks(text + continuation, TOOLS, **mode)
    assert visible.startswith(visible_before) or leaks.has_retracted > had_retracted
    assert mode["reasoning"] == "auto" or not leaks.has_retracted


@settings(max_examples=60)
@given(DOCUMENTS)
def test_visible_text_is_a_subsequence_of_the_input(text: str) -> None:
    characters = iter(text)
    visible = filter_leaks(text, TOOLS).visible.replace("\n\n", "")  # may separate two channels
    assert all(char in characters for char in visible)


@settings(max_examples=60)
@given(cut_documents())
def test_reported_leaks_are_never_retracted(chunks: list[str]) -> None:
    leaks = LeakFilter(TOOLS)
    reported: list[tuple[str, int]] = []
    for chunk in chunks:
        leaks.feed(chunk)
        now = [(leak.family, leak.position) for leak in leaks.leaks]
        assert now[: len(reported[:1])] == reported[:1]
        reported = now


@settings(max_examples=60)
@given(cut_documents(), NAMES, MODES)
def test_withheld_text_is_bounded(chunks: list[str], tools: tuple[str, ...], mode: Mode) -> None:
    leaks = LeakFilter(tools, **mode)
    for chunk in chunks:
        leaks.feed(chunk)
        assert len(leaks.held) <= max(MAX_FORMAT_LENGTH, MAX_JSON_LENGTH)
    leaks.close()
    assert leaks.held == ""


@settings(max_examples=60)
@given(st.text(), st.integers(1, 5))
def test_filter_accepts_any_text(text: str, size: int) -> None:
    leaks = LeakFilter(TOOLS)
    visible = "".join([leaks.feed(text[at : at + size]) for at in range(0, len(text), size)])
    assert (visible + leaks.close(), leaks.leaks) == filter_leaks(text, TOOLS)
