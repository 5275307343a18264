r"""The table of formats in which models write tool calls as text.

Tags and tokens around the name of a registered tool need no row: `WRAPPED` in `tool_formats.py`
takes any. A new family is a new row if it must be hidden without a name, or has channels.

`automaton.py` defines the language. A row matches the shortest text that prose never contains;
everything from its first character on is hidden. From `§` on, a text that ends is a truncated call.
Macros:

| macro | meaning |
|---|---|
| `\L` `\G` | `<` and `>`, in either width or escaped |
| `\B` | a bar of the many in use: `|`, `｜`, `‖` … |
| `\U` | a separator of two words: `_`, `▁`, `-`, a blank, or nothing |
| `\Q` | a quotation mark |
| `\N` | the name of any tool |
| `\T` | a registered tool's name, or with its namespace; without tools the row matches nothing |
| `\W` | the words of a wrapper: `tool_call`, `function_calls`, `tool_use` … |
| `\P` | a namespace (`minimax:`, `seed:` …) or a vendor's prefix |
| `\A` | the suffix and the attributes of a tag, if it has any, but not those of Vue (`:name=`) |
| `\K` | a key of a call in JSON |
| `\H` | the word of a reasoning tag |
| `\S` | a string in quotation marks |
| `\Z` | blanks, also written as escapes |
| `\J` | the start of a JSON object, a list of them, or a list of Python calls |
"""

from dataclasses import dataclass
from enum import Enum, IntEnum

# In this order: later ones use earlier ones.
MACROS = {
    "L": "([<＜‹]|&lt;)",
    "G": "([>＞›]|&gt;)",
    "B": "[|｜‖│∣∥¦￨❘ǀ]",
    "U": r"[_▁\- ]?",
    "Q": r"""["'“”]""",
    "N": r"""[^\s<>＜＞"'`{}()\[\]|｜,;，。；：、=&/\\]+""",
    "W": r"(tool|function)\U(calls?|uses?|code|invocations?|requests?)([_▁](begin|start|sep))?",
    "P": r"([a-z][a-z0-9.\-]*:|longcat_|dots_|start_|begin_)",
    "A": r"(:[^\s<>]*|_[a-z]*[0-9][0-9a-z]*)?(\s+([^<>\s:@][^<>\s]*)?)*",
    "K": r"\Q(name|tool|tool_name|function|action|arguments|parameters)\Q\s*:",
    "H": "(think|thinking|thought|reasoning|scratch_pad)",
    "S": r"""("([^"\\]|\\[^\n])*"|'([^'\\]|\\[^\n])*'|“[^”]*”)""",
    "Z": r"(\s|\\[nt])*",
    "J": r"(\{{1,2}\s*(\Q|[a-z_]+\s*[:=])|\[\s*(\{\s*\Q|\N\())",
}


class StartPosition(IntEnum):
    """Where a format may begin; each position includes the ones before it."""

    ANYWHERE = 0
    WORD = 1  # not inside a Latin word
    MARK = 2  # after an emoji, an arrow or a closing bracket
    SENTENCE = 3  # at the first word of a sentence, or after a colon
    LINE = 4  # at the first word of a line
    START = 5  # at the first word of the answer


class FormatKind(Enum):
    """What to do with a match."""

    CALL = "call"  # hide it and the rest
    JSON = "json"  # read on: the object may be a call
    END = "end"  # of the answer: hide it and the rest, which is no call
    REASONING = "thought"  # hide it and what follows up to the end marker
    TOKEN = "token"  # hide it and show what follows  # noqa: S105
    STRUCK = "struck"  # show it: the next `</s>` closes it, and is no end


@dataclass(frozen=True, slots=True)
class FormatRow:
    """A format of text that is not for the reader; letters match in both cases unless `exact`.

    With `may_exceed_limit` it also matches if it is incomplete at the maximum length. Outside code
    `lenient_end` must follow; for DeepSeek's tokens, and the position, in lenient mode only.
    """

    family: str
    pattern: str
    start_position: StartPosition = StartPosition.ANYWHERE
    kind: FormatKind = FormatKind.CALL
    exact: bool = False
    may_exceed_limit: bool = False
    lenient_end: str = ""
    lenient_position: StartPosition = StartPosition.ANYWHERE


_ANY, _WORD, _MARK, _SENTENCE, _LINE, _START = StartPosition

# What follows a control token in a call; prose about a token goes on with a blank and a word.
_BODY = (
    r"§(\Z(\{|\[\s*(\{|\[|\N\()|\T)|\L|[a-z0-9_]"
    r"|(\n|\\n)(\Z(\L|[a-z_][a-z0-9_.\-]*(\n|\\n|[\[{(]|\L))|[a-z_\"'@]))"
)
_BARE_BODY = _BODY.replace("§(", r"§(\s*\B|", 1)  # if the brackets of all tokens were eaten
_DSML_BODY = rf"[^<>\n]*(name\s*=|\G{_BODY.removeprefix('§')})"
# Control tokens, which do not occur in the prose of end users.
DSML = (
    FormatRow("deepseek_dsml", r"\L ?/? ?\B{1,4} ?/?DS§ML ?\B", lenient_end=_DSML_BODY),
    FormatRow("deepseek_dsml", r"\L ?/?DSML ?/?(\W|invoke|parameter)", lenient_end=_DSML_BODY),
    FormatRow("deepseek_dsml", r"\B{1,4}DSML\B{1,4}/?\W ?\G", lenient_end=_BARE_BODY),
    FormatRow("deepseek_dsml", r"\B{1,4}DSML\B{1,4}/?(invoke|parameter)\s+name\s*="),
)
_TOOL = r"\L ?/?\B{1,2} ?/?(tool|function|invoke|api)s?([_▁:\- ]|call|use)§"
_BARE_MARK = r"(｜tool[_▁ ]|\Btool▁)((calls?|outputs?)[_▁ ](begin|end)|sep)\B\G?"
TOKENS = (
    FormatRow("deepseek_v3", _BARE_MARK, lenient_end=_BARE_BODY),
    FormatRow("kimi_k2", r"functions\.\N:[0-9]+\{\s*(\Q|\})", _WORD),
    FormatRow("kimi_k3", r"\L\|(open|close)\|\G§\s*(tools|call|argument)"),
    FormatRow("gemma4", r"\L\|\"§\|\G"),
    FormatRow("control_token", r"\L\|(python|action)_§[a-z]+\|\G", lenient_end=_BODY),
    FormatRow("inkling", r"\L\|content_invoke_§tool[a-z_]*\|\G", lenient_end=_BODY),
    FormatRow("cohere", r"\L\|(START|END)_ACTION§\|\G", lenient_end=_BODY),
    FormatRow("minimax_m3", r"\]\L\]mini§max\[\G\[", lenient_end=_BODY),
    FormatRow("mistral", r"\[/?(END_)?TOOL_§(CALLS?|RESULTS?|USE|REQUEST)\]", lenient_end=_BODY),
    FormatRow("mistral", r"\[(ARGS|CALL_ID)\][a-zA-Z0-9]*(\[ARGS\])?\s*\{", exact=True),
    FormatRow("mistral", r"\T\s?\[(ARGS|CALL_ID)\]", _SENTENCE, exact=True),
    FormatRow("qwen_agent", r"✿(FUNCTION|ARGS|RESULT)✿", exact=True, lenient_end=r"\s*[:：]"),
    FormatRow("functionary", r"(\L\|from\|\Gassistant\s*)?\L\|recipient\|\G\s*([^a\s]|a[^l\s])"),
    FormatRow("control_token", _TOOL + r"[a-z]*([_▁:\- ][a-z]+)* ?\B{0,2} ?\G", lenient_end=_BODY),
)

START_TOKEN = r"(\L\|start\|\G(assistant)?\s*)?"  # noqa: S105
_CHANNEL = START_TOKEN + r"\L\|channel\|\G"
HARMONY = (
    FormatRow("harmony", _CHANNEL + r"§\s*commentary\s*(to=|json|code|\L\|constrain)"),
    FormatRow("harmony", _CHANNEL + r"\s*commentary§\s*\L\|message\|\G\s*\{\s*(\Q|\})"),
    FormatRow("harmony", START_TOKEN + r"\L\|message\|\G\s*\{\s*(\Q|\})"),
    FormatRow("harmony", _CHANNEL + r"\s*analysis\s*to="),
    FormatRow("harmony", r"\L\|start\|\Gassistant\s*to=(\T|\N\.|python|browser|container)"),
    FormatRow("harmony", r"\L\|start\|\G\s*(functions|tools?|browser|python)(\.|\s|\L)"),
    FormatRow("harmony", r"\L\|call\|\G", lenient_end=_BODY),
    FormatRow("harmony", r"\L\|constrain§\|\G", lenient_end=r"\s*[a-z]*\s*\L"),
    FormatRow(
        "harmony_stripped", r"(commentary|analysis)\s*to=§(functions|tools|browser)\.", _WORD
    ),
    FormatRow("harmony_stripped", r"(assistant|commentary|analysis)\s*to=\T(\s|\L|\{)", _WORD),
    FormatRow("harmony_stripped", r"to=functions\.\N", _LINE),
    FormatRow("harmony_stripped", r"to=\T", _SENTENCE),
    FormatRow("harmony_stripped", r"assistant\s?commentary\s?(to=|(json\s?)?\{)", _WORD),
)

# Tags that prose may mention: a call only if the structure of one follows.
_WRAPPER = r"\L ?\W\A\G\Z"
_SEPARATED = r"(tool|function)[_▁\- ](calls?|uses?|code)"  # `ToolCall` is a component of JSX
_PLACEHOLDER = rf"\L ?{_SEPARATED}\A\G(\s*\n\s*)?[a-z0-9][^<>]*\L/\W"
_CLOSING = r"(invoke|(tool|function)_(calls?|uses?|code))"  # `</tool-call>` is one of Vue
_RESULT = r"(tool|function)\U(response|result|output)s?"
TAGS = (
    FormatRow("truncated_opener", r"\L(tool|function)_§calls?\A\G\s*(\L[a-z_=]*)?[]"),
    FormatRow("truncated_opener", r"\L(tool|function)_c§alls?\A\G(\n\s*)?[a-z_][a-z0-9_.\-]*[]"),
    FormatRow("truncated_opener", r"\L\B[a-z]§[a-z_▁]*[]"),
    FormatRow("hermes_json", _WRAPPER + r"(```[a-z]*\s*)?\J"),
    FormatRow("hermes_json", _WRAPPER + r"\N\s*\{\s*(\Q|\})"),
    FormatRow("hermes_json", r"\L(tool|function|action|call|api|execute)s?\A\G\s*(\[\s*)?\{\s*\K"),
    FormatRow("glm", _WRAPPER + r"(\N\Z)?\L§(tool_sep|arg_key|arg_value)"),
    FormatRow("glm", _WRAPPER + r"\T§\s*\L"),
    FormatRow("glm", r"\Larg_key\A\G[^<>]*\L/arg_key\A\G\s*\Larg_value"),
    FormatRow("malformed", _PLACEHOLDER, lenient_position=_SENTENCE),
    FormatRow("olmo3", _WRAPPER + r"(print\()?\N\("),
    FormatRow("xml_function", _WRAPPER + r"\L ?(function|\P?invoke|\W\A\G)"),
    FormatRow("xml_function", _WRAPPER + r"\L ?(\T|name|tool|tool_name|parameter|arguments)[\s/>]"),
    FormatRow("xml_function", _WRAPPER + r"\L ?[a-z][a-z0-9_.\-]*\s+[a-z][a-z0-9_\-]*\s*=\s*\Q"),
    FormatRow("xml_function", rf"\L ?{_SEPARATED}(\s[^<>]*)?\sname\s*=§\s*\Q?\N\Q?[^<>]*\G"),
    FormatRow("namespaced_xml", r"\L ?\P\W§\A\G(\s*(\L[^/\s]|[{\[`])|[a-z0-9]|\s*\n\s*\N\s*\L)"),
    FormatRow("invoke", r"\L ?\P?invoke\s[^<>]*name\s*=\s*\Q?\T\Q?(\s|/|\G)"),
    FormatRow("invoke", r"\L ?invoke\s+name\s*=\s*\Q?\N\Q?\s*/\G"),
    FormatRow("invoke", r"\L ?\P?invoke\s[^<>]*name§\s*=[^<>]*[^/<>]\G(\s*[<{\[]|[a-z0-9])"),
    FormatRow("qwen_bare", r"\L ?_*function\s*=§\s*\Q?\N\Q?\s*\G(\s*(\L[a-z/]|\{)|[a-z0-9])"),
    FormatRow("qwen_bare", r"\L ?parameter\s*=§\s*\N\s*\G(\s*\n|[^<\n]*\L/parameter)", _LINE),
    FormatRow("qwen_bare", r"\L ?parameter\s*=\s*\N\s*\G[^<]*\L/parameter"),
    FormatRow("tool_tag", r"\L((tool|function)(_name)?|action|invoke|call|api)\G\s*\T(\s*\L|\()"),
    FormatRow(
        "tool_tag", r"\L ?(tool|function|action|call|execute)\s[^<>]*name§=\s*\Q?\T\Q?(\s|/|\G)"
    ),
    FormatRow("tool_tag", r"\L(execute|use|call|run)_tool\G\s*(\T|\L(name|tool_name)\G)"),
    FormatRow("tool_tag", r"\Luse_mcp_§tool\G\s*\L(server|tool)_name\G"),
    FormatRow("tool_tag", r"\L\T(\G\s*(\L[a-z]|\{\s*\Q|\L/\T)|\s+[a-z_]+\s*=\s*\Q|\s*/\G)"),
    FormatRow("tool_tag", r"\L\T\G[^<>]*\L/\T\G", lenient_position=_SENTENCE),
    FormatRow("tool_result", r"\L ?" + _RESULT + r"\A\G\s*(\{\s*(\Q|\})|\[\s*([{\]]|\Q)|\T)"),
    FormatRow("tool_result", r"\L ?" + _RESULT + r"\A\G\s*\L(result|output|tool_name|name|\T)\A\G"),
)

# The rest of calls whose opening tag is missing.
_PARAMETER = r"\L ?\P?parameter\s+name\s*=[^<>]*\G[^<>]*\L/\P?parameter\G"
CLOSERS = (
    FormatRow("hermes_json", r"\W\G\s*(\[\s*)?\{\s*\Q(name|tool|function)", _SENTENCE),
    FormatRow("orphan_close", _PARAMETER + r"\s*\L/\P?(invoke|function|\W)"),
    FormatRow("orphan_close", r"\L/\P?(parameter|param|arg_value)\G\s*\L/\P?§(invoke|\W)\A\G"),
    FormatRow("orphan_close", r"\L/[a-z_]+\G\s*\L/\P?invoke\G§\s*\L/\P?\W"),
    FormatRow("orphan_close", r"\L/(\Pinvoke|invoke|function)\G\s*\L/\P?§\W\A\G"),
    FormatRow("orphan_close", rf"\L/\P?{_CLOSING}\G§\s*\L/?\P?(invoke|\W)"),
    FormatRow("orphan_close", rf"\L/\P?{_CLOSING}\G[ \t]*\n", _LINE),
)
