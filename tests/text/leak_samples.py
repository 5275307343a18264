"""Ordinary text without calls, from templates and from real files."""

import itertools
import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = Path(sysconfig.get_paths()["stdlib"])

TAGS = ["<tool_call>", "<function_calls>", "<invoke>", "<think>", "<function=f>", "</tool_call>"]
MENTIONS = [
    "Use {} tags to call tools.",
    "What does {} mean?",
    "In Qwen, {} opens a call, and the rest is JSON.",
    "He wrote “{}” and left it there.",
    'He wrote "{}" and left it there.',
    "('{}' is what it said)",
    "The tag {}, as documented, is special.",
    "模型输出{}标签时，服务器会解析。",
    "请不要写{}，要用结构化调用。",
    "标签（{}）后面应该是 JSON。",
    "- {}: see the docs\n- other",
    "| tag | use |\n|---|---|\n| {} | a call |\n",
    "Is it {} or {}?",
]
TOKENS = [
    *(
        "<｜tool▁calls▁begin｜>",
        "<|python_tag|>",
        "[TOOL_CALLS]",
        "<｜DSML｜invoke>",
        "<|channel|>",
    ),
    *('<tool_call>{"name": "search_memory", "arguments": {}}</tool_call>', "<|START_ACTION|>["),
    *("functions.search_memory({})", 'search_memory(query="x")', "</parameter></invoke>"),
    *(
        '{"name": "search_memory", "arguments": {}}',
        "[search_memory(query='x')]",
        "<seed:tool_call>",
    ),
]
QUOTED = [
    "The token is `{}`.",
    "它写作 `{}`，见文档。",
    "``{}`` and `other`",
    "Example:\n```\n{}\n```\nThat is all.",
    "例子：\n```xml\n{}\n```\n如上。",
    "1. First\n   ```json\n   {}\n   ```\n2. Second",
    "~~~\n{}\n~~~\n",
    "> ```\n> {}\n> ```\n> quoted",
]
NAMES = ["Alice", "王芳", "order", "get_weather", "search", "tool", "function", "memory", "x"]
OBJECTS = [
    '{{"name": "{}", "age": 3}}',
    '{{"name": "{}", "arguments": {{"q": 1}}}}',
    'Your config: {{"tool": "{}", "enabled": true}}.',
    '[{{"name": "{}"}}, {{"name": "b"}}]',
    '{{"type": "object", "properties": {{"{}": {{"type": "string"}}}}}}',
    '{{"id": 1, "type": "{}", "items": [1, 2, {{"a": null}}]}}',
    "{{'{}': [1, 2, 3], 'b': {{}}}}",
    '{{"function": "{}", "line": 10}}',
    "[{}(x) for x in y]",
    "{}[0] = {{1: 2}}",
    "[{}](https://example.com/a?b=c#d)",
    "{} = [[1, 2], [3, 4]]",
]
MARKUP = [
    "<{0}>text</{0}>",
    '<{0} id="1" class="a b">text</{0}>',
    "<{0}/>",
    "<ns:{0} xmlns:ns='urn:x'><ns:b/></ns:{0}>",
    "<!-- {0} --><{0}><![CDATA[x < y]]></{0}>",
    '<?xml version="1.0"?>\n<root>\n  <{0} name="n">v</{0}>\n</root>\n',
    "a <{0} b> c",
    "&lt;{0}&gt;",
]
ELEMENTS = [
    *(
        *("div", "p", "table", "tool", "function", "call", "parameter", "param", "item", "name"),
        "span",
    ),
    *(
        *("svg", "action", "message", "channel", "start", "tools", "invoice", "thing", "input"),
        "output",
    ),
]
LATEX = [
    r"\begin{{{0}}} x_{{i}} \le \frac{{a}}{{b}} \end{{{0}}}",
    r"$\langle {0} | \psi \rangle$ and $|{0}\rangle$",
    r"\newcommand{{\{0}}}[1]{{\textbf{{#1}}}}",
    r"\[ \left\{{ {0} : x < 3 \right\}} \]",
    r"\cite[p.~3]{{{0}}} \label{{sec:{0}}}",
]
ENVIRONMENTS = ["align", "tool", "function", "equation", "analysis", "call", "matrix", "cases"]
SENTENCES = [
    "The {0} was moved to {1}; we said so on {2}.",
    "{0} 在{2}说过，{1} 的事已经定了。",
    "Analysis of {0}: commentary to {1}, final on {2}.",
    "assistant {0} to={1} at {2}",
    "functools.{0}, functions.{1} and {2} < 3",
    "Action: call {0}\nInput: {1}, {2}",
    "{0}<{1} && {1}>{2} || a|b",
    "Call {0}({1}) then {2}[0] {{ok}}",
    "“{0}”｜{1}｜{2}——好的。",
    "- [ ] {0}\n- [x] {1}\n* {2}",
    "commentary, analysis, {0}; to=do {1}. to = {2}",
    "工具：{0}\n参数：{1}\n结果：{2}",
]
FILLERS = [
    ("Alice", "Friday", "3 May"),
    ("王芳", "周五", "昨天"),
    ("tool", "function", "call"),
    ("the deploy", "staging", "2026-03-01"),
    ("x", "y", "z"),
    ("数据库配置", "端口 5433", "上周三"),
    ("recall", "memory", "handoff"),
]


def _fill(templates: list[str], *fillers: list[str]) -> Iterator[str]:
    for template, filler in itertools.product(templates, itertools.product(*fillers)):
        yield template.format(*filler)


def _fill_templates() -> Iterator[str]:
    """Yield samples from the templates above."""
    for template, first in itertools.product(MENTIONS, TAGS):
        yield template.replace("{}", first)
    for template, token in itertools.product(QUOTED, TOKENS):
        yield template.replace("{}", token)
    yield from _fill(OBJECTS, NAMES)
    yield from _fill(MARKUP, ELEMENTS)
    yield from _fill(LATEX, ENVIRONMENTS)
    for template, filler in itertools.product(SENTENCES, FILLERS):
        yield template.format(*filler)


def _read_messages() -> Iterator[str]:
    """Yield the messages of the project's fixtures."""
    for path in ("eval/corpus.jsonl", "demo/chat.jsonl"):
        for line in (ROOT / "fixtures" / path).read_text("utf-8").splitlines():
            yield str(json.loads(line)["content"])
            yield line


def _read_documents() -> Iterator[str]:
    for path in [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "prompts").glob("*.md"),
    ]:
        text = path.read_text("utf-8")
        yield text
        yield from text.split("\n\n")


def _read_python_sources() -> Iterator[str]:
    """Yield Python sources, whole, in parts and inside a fence."""
    names = [
        *("argparse", "ast", "dataclasses", "functools", "html/parser", "inspect", "json/decoder"),
    ]
    names += ["logging/__init__", "re/_parser", "string", "tokenize", "typing", "xml/dom/minidom"]
    for name in names:
        source = (LIBRARY / f"{name}.py").read_text("utf-8")
        yield source
        yield from source.split("\n\n")
        yield f"Here it is:\n```python\n{source}\n```\nDone."


def _has_closed_fences(sample: str) -> bool:
    """Return True if every fence is closed; text after an open one is not filtered."""
    return sample.count("```") % 2 == 0


TEMPLATE_SAMPLES = list(dict.fromkeys(_fill_templates()))
REAL_SAMPLES = list(
    dict.fromkeys(
        filter(
            _has_closed_fences,
            itertools.chain(_read_messages(), _read_documents(), _read_python_sources()),
        )
    )
)
SAMPLES = TEMPLATE_SAMPLES + REAL_SAMPLES
