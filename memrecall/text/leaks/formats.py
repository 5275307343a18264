r"""The table of formats in which models write tool calls as text. A new family is a new row.

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
| `\T` | the name of a registered tool; without tools such a row matches nothing |
| `\W` | the words of a wrapper: `tool_call`, `function_calls`, `tool_use` … |
| `\P` | a namespace (`minimax:`, `seed:` …) or a vendor's prefix |
| `\A` | the suffix and the attributes of a tag, if it has any |
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
    "W": r"(tool|function)\U(calls?|uses?|code|invocations?|requests?)",
    "P": r"([a-z][a-z0-9.\-]*:|longcat_|dots_|start_|begin_)",
    "A": r"(:[^\s<>]*|_[a-z]*[0-9][0-9a-z]*)?(\s[^<>]*)?",
    "H": "(think|thinking|thought|reasoning|scratch_pad)",
    "S": r"""("([^"\\]|\\[^\n])*"|'([^'\\]|\\[^\n])*'|“[^”]*”)""",
    "Z": r"(\s|\\[nt])*",
    "J": r"(\{{1,2}\s*(\Q|[a-z_]+\s*[:=])|\[\s*(\{\s*\Q|\N\())",
}


class StartPosition(IntEnum):
    """Where a format may begin; each position includes the ones before it."""

    ANYWHERE = 0
    WORD = 1  # not inside a Latin word
    SENTENCE = 2  # at the first word of a sentence, or after a colon
    LINE = 3  # at the first word of a line
    START = 4  # at the first word of the answer


class FormatKind(Enum):
    """What to do with a match."""

    CALL = "call"  # hide it and the rest
    JSON = "json"  # read on: the object may be a call
    REASONING = "thought"  # hide it and what follows up to the end marker
    TOKEN = "token"  # hide it and show what follows  # noqa: S105


@dataclass(frozen=True, slots=True)
class FormatRow:
    """A format of text that is not for the reader; letters match in both cases unless `exact`.

    With `may_exceed_limit` it also matches if it is incomplete at the maximum length. In lenient
    mode `lenient_end` must follow the pattern, and the match begins at `lenient_position`.
    """

    family: str
    pattern: str
    start_position: StartPosition = StartPosition.ANYWHERE
    kind: FormatKind = FormatKind.CALL
    exact: bool = False
    may_exceed_limit: bool = False
    lenient_end: str = ""
    lenient_position: StartPosition = StartPosition.ANYWHERE


_ANY, _WORD, _SENTENCE, _LINE, _START = StartPosition

# What follows a control token in a call; prose about a token goes on with a blank and a word.
_BODY = (
    r"§(\Z(\{|\[\s*(\{|\[|\N\()|\T)|\L|[a-z0-9_]"
    r"|(\n|\\n)\Z(\L|[a-z_][a-z0-9_.\-]*(\n|\\n|[\[{(]|\L)))"
)
_BARE_BODY = _BODY.replace("§(", r"§(\s*\B|", 1)  # if the brackets of all tokens were eaten
_DSML_BODY = rf"[^<>\n]*(name\s*=|\G{_BODY.removeprefix('§')})"
# Control tokens, which do not occur in the prose of end users.
DSML = (
    FormatRow("deepseek_dsml", r"\L ?/? ?\B{1,4} ?/?DS§ML ?\B", lenient_end=_DSML_BODY),
    FormatRow("deepseek_dsml", r"\L ?/?DSML ?/?(\W|invoke|parameter)", lenient_end=_DSML_BODY),
    FormatRow(
        "deepseek_dsml",
        r"｜DSML｜ ?/?(tool|function|invoke|parameter|calls)",
        lenient_end=_DSML_BODY,
    ),
    FormatRow("deepseek_dsml", r"\B{1,4}DSML\B{1,4}/?\W ?\G", lenient_end=_BARE_BODY),
    FormatRow("deepseek_dsml", r"\B{1,4}DSML\B{1,4}/?(invoke|parameter)\s+name\s*="),
)
TOKENS = (
    FormatRow(
        "deepseek_v3",
        r"\L ?/?｜{1,2} ?tool§\U(calls?|sep|outputs?)",
        lenient_end=r"[a-z_▁ \-]*\B{1,2} ?\G" + _BODY,
    ),
    FormatRow(
        "deepseek_v3",
        r"(｜tool[_▁ ]|\Btool▁)(calls?[_▁ ](begin|end)|sep|outputs?[_▁ ](begin|end))\B",
        lenient_end=r"\G?" + _BARE_BODY,
    ),
    FormatRow(
        "deepseek_v3",
        r"\L ?/?\B{1,2} ?tool▁§(calls?|sep|outputs?)",
        lenient_end=r"[a-z_▁ \-]*\B{1,2} ?\G" + _BODY,
    ),
    FormatRow(
        "kimi_k2",
        r"\L ?\|{1,2} ?tool_calls?_§(section_|argument_)?(begin|end)",
        lenient_end=r" ?\|{1,2}\G" + _BODY,
    ),
    FormatRow("kimi_k2", r"functions\.\N:[0-9]+\s*\{", _WORD),
    FormatRow("kimi_k3", r"\L\|(open|close)\|\G§\s*(tools|call|argument)"),
    FormatRow("lfm2", r"\L\|tool_call_§start\|\G", lenient_end=_BODY),
    FormatRow("granite", r"\L\|tool_call§\|\G", lenient_end=_BODY),
    FormatRow("gemma4", r"\L\|tool_call§\G", lenient_end=_BODY),
    FormatRow("gemma4", r"\Ltool_call\|§\G", lenient_end=_BODY),
    FormatRow("gemma4", r"\L\|\"§\|\G"),
    FormatRow("gemma4", r"call:\T\{", _WORD),
    FormatRow("gemma4", r"call:\N\{[a-z_]+:\L(\||escape\G)", _WORD),
    FormatRow("llama", r"\L\|python_§(tag|start|end)\|\G", lenient_end=_BODY),
    FormatRow("internlm", r"\L\|action_§(start|end)\|\G", lenient_end=_BODY),
    FormatRow("internlm", r"\L\|(plugin|interpreter)§\|\G", lenient_end=_BODY),
    FormatRow("cohere", r"\L\|(START|END)_ACTION§\|\G", lenient_end=_BODY),
    FormatRow("apertus", r"\L\|tools_§(prefix|suffix)\|\G", lenient_end=_BODY),
    FormatRow("gigachat", r"\L\|function_call§\|\G", lenient_end=_BODY),
    FormatRow("gigachat", r"function call\L\|role_sep\|\G", _WORD),
    FormatRow("inkling", r"\L\|content_invoke_§tool[a-z_]*\|\G", lenient_end=_BODY),
    FormatRow("minimax_m3", r"\]\L\]mini§max\[\G\[", lenient_end=_BODY),
    FormatRow(
        "mistral",
        r"\[/?(END_)?TOOL_§(CALLS?|RESULTS?|USE|REQUEST)\]",
        exact=True,
        lenient_end=_BODY,
    ),
    FormatRow("mistral", r"\[(ARGS|CALL_ID)\][a-zA-Z0-9]*(\[ARGS\])?\s*\{", exact=True),
    FormatRow("mistral", r"\T\s?\[(ARGS|CALL_ID)\]", _SENTENCE, exact=True),
    FormatRow("qwen_agent", r"✿(FUNCTION|ARGS|RESULT)✿", exact=True, lenient_end=r"\s*[:：]"),
    FormatRow("functionary", r"(\L\|from\|\Gassistant\s*)?\L\|recipient\|\G\s*([^a\s]|a[^l\s])"),
    FormatRow(
        "control_token",
        r"\L ?/?\B{1,2} ?/?(tool|function|invoke)s?[_▁\- ]§[a-z]+([_▁\- ][a-z]+)* ?\B{0,2} ?\G",
        lenient_end=_BODY,
    ),
    FormatRow(
        "control_token",
        r"\L ?/?\B{1,2} ?/?(tool|function)(call|use)§[a-z_▁]* ?\B{0,2} ?\G",
        lenient_end=_BODY,
    ),
    FormatRow("control_token", r"\L ?/?\B{1,2} ?/?(tool|function|api)s? ?\B{1,2} ?\G\s*\T"),
)

START_TOKEN = r"(\L\|start\|\G(assistant)?\s*)?"  # noqa: S105
HARMONY = (
    FormatRow(
        "harmony",
        START_TOKEN + r"\L\|channel\|\G§\s*commentary",
        lenient_end=r"§\s*(to=|\L|json|code)",
    ),
    FormatRow("harmony", START_TOKEN + r"\L\|channel\|\G\s*analysis\s*to="),
    FormatRow(
        "harmony", r"\L\|start\|\Gassistant\s*to=(\T|\N\.|python|browser|container|functions)"
    ),
    FormatRow("harmony", r"\L\|start\|\G\s*(functions|tools?|browser|python)(\.|\s|\L)"),
    FormatRow("harmony", r"\L\|constrain§\|\G", lenient_end=r"\s*[a-z]*\s*\L"),
    FormatRow("harmony", r"\L\|call\|\G", lenient_end=_BODY),
    FormatRow(
        "harmony_stripped",
        r"(assistant\s?)?(commentary|analysis)\s*to=§(functions|tools|browser|container)\.",
        _WORD,
    ),
    FormatRow("harmony_stripped", r"(assistant|commentary|analysis)\s*to=\T(\s|\L|\{)", _WORD),
    FormatRow("harmony_stripped", r"assistant\s?to=functions\.\N", _WORD),
    FormatRow("harmony_stripped", r"to=functions\.\N", _LINE),
    FormatRow("harmony_stripped", r"to=functions\.\T", _SENTENCE),
    FormatRow("harmony_stripped", r"assistant\s?commentary\s?(to=|(json\s?)?\{)", _WORD),
)

# Tags that prose may mention: a call only if the structure of one follows.
_WRAPPER = r"\L ?\W\A\G\Z"
_AFTER_INVOKE = r"[^<>]*[^/<>]\G(\s*[<{\[]|[a-z0-9])"
# A parameter without a value (`<param/>`) belongs to a declaration.
_AFTER_FUNCTION = r"\s*(\L(param|arg)[^<>]*[^/<>]\G|\L/(param|arg|function)|\{)"
_RESULT = r"(tool|function)\U(response|result|output)s?"
TAGS = (
    FormatRow("truncated_opener", r"\L(tool|function)_c§alls?\A\G\s*(\L[a-z_=]*)?[]"),
    FormatRow("truncated_opener", r"\L(tool|function)_c§alls?\A\G(\n\s*)?[a-z_][a-z0-9_.\-]*[]"),
    FormatRow("truncated_opener", _WRAPPER + r"\T§\s*[]"),
    FormatRow("hermes_json", _WRAPPER + r"(```[a-z]*\s*)?\J"),
    FormatRow("hermes_json", _WRAPPER + r"\Q(name|tool|function|arguments|parameters)\Q\s*:"),
    FormatRow("hermes_json", _WRAPPER + r"\N\s*\{\s*(\Q|\})"),
    FormatRow(
        "hermes_json",
        r"\L(tool|function|action|call|api|execute)s?\A\G\s*(\[\s*)?"
        r"\{\s*\Q(name|tool|tool_name|function|action|arguments|parameters)\Q\s*:",
    ),
    FormatRow("glm", _WRAPPER + r"(\N\Z)?\L(tool_sep|arg_key|arg_value)"),
    FormatRow("glm", _WRAPPER + r"\T\s*\L/\W"),
    FormatRow(
        "glm",
        r"\L ?\W\A\G(\s*\n\s*)?[a-z_][a-z0-9_.\-]*(\s*\n\s*)?\L/\W",
        lenient_position=_SENTENCE,
    ),
    FormatRow("glm", _WRAPPER + r"\L ?\W\A\G"),
    FormatRow("glm", r"\Larg_key\A\G[^<>]*\L/arg_key\A\G\s*\Larg_value"),
    FormatRow(
        "malformed",
        r"\L ?\W\A\G(\s*\n\s*)?[a-z0-9][^<>]*\L/\W",
        lenient_position=_SENTENCE,
    ),
    FormatRow("olmo3", _WRAPPER + r"(print\()?\N\("),
    FormatRow("xml_function", _WRAPPER + r"\L ?function"),
    FormatRow("invoke", _WRAPPER + r"\L ?invoke"),
    FormatRow("namespaced_xml", _WRAPPER + r"\L ?\Pinvoke"),
    FormatRow(
        "xml_function", _WRAPPER + r"\L ?(\T|name|tool|tool_name|parameter|arguments)(\s|/|\G)"
    ),
    FormatRow("xml_function", _WRAPPER + r"\L ?[a-z][a-z0-9_.\-]*\s+[a-z][a-z0-9_\-]*\s*=\s*\Q"),
    FormatRow("xml_function", r"\L ?\W\s[^<>]*name\s*=§\s*\Q?\N\Q?[^<>]*\G"),
    FormatRow("namespaced_xml", r"\L ?\P\W§\A\G(\s*(\L[^/\s]|[{\[`])|[a-z0-9]|\s*\n\s*\N\s*\L)"),
    FormatRow("namespaced_xml", r"\Lend_function_call§\G"),
    FormatRow("namespaced_xml", r"\L ?(antml|atem|minimax|seed|steptml):invoke\s[^<>]*name§\s*="),
    FormatRow("namespaced_xml", r"\L ?\Pinvoke\s[^<>]*name\s*=\s*\Q?\T\Q?(\s|/|\G)"),
    FormatRow("namespaced_xml", r"\L ?\Pinvoke\s[^<>]*name§\s*=" + _AFTER_INVOKE),
    FormatRow("invoke", r"\L ?invoke\s+name\s*=[^<>]*/\G"),
    FormatRow("invoke", r"\L ?invoke\s[^<>]*name\s*=\s*\Q?\T\Q?\s*/\G"),
    FormatRow("invoke", r"\L ?invoke\s[^<>]*name§\s*=" + _AFTER_INVOKE),
    FormatRow("qwen_bare", r"\L ?function\s*=§\s*\Q?\N\Q?\s*\G(\s*(\L[a-z/]|\{)|[a-z0-9])"),
    FormatRow("qwen_bare", r"\L ?parameter\s*=§\s*\N\s*\G(\s*\n|[^<\n]*\L/parameter)", _LINE),
    FormatRow("qwen_bare", r"\L ?parameter\s*=\s*\N\s*\G[^<]*\L/parameter"),
    FormatRow("minicpm", r"\L ?function\s?name§\s*=[^<>]*\G" + _AFTER_FUNCTION),
    FormatRow("minicpm", r"\L ?function\s[^<>]*name§\s*=[^<>]*\G" + _AFTER_FUNCTION),
    FormatRow("minicpm", r"\L ?function\s[^<>]*name§\s*=\s*\Q?\T\Q?(\s|/|\G)"),
    FormatRow("minicpm", r"\L ?param\s+name§\s*=[^<>]*\G\s*\L!\[CDATA\["),
    FormatRow(
        "tool_tag", r"\L(tool_name|function_name|tool|function|action|invoke|call)\G\s*\T\s*\L"
    ),
    FormatRow(
        "tool_tag", r"\L(tool|function|action|invoke|call|execute|code|python|api)\G\s*\T\s*[({]"
    ),
    FormatRow("tool_tag", r"\L ?(tool|action|call|execute)\s[^<>]*name§\s*=\s*\Q?\T\Q?(\s|/|\G)"),
    FormatRow(
        "tool_tag", r"\L(execute_tool|use_tool|call_tool|run_tool)\G\s*(\T|\L(name|tool_name)\G)"
    ),
    FormatRow("tool_tag", r"\Luse_mcp_§tool\G\s*\L(server|tool)_name\G"),
    FormatRow("tool_tag", r"\L\T\G\s*(\L[a-z]|\{\s*\Q)"),
    FormatRow("tool_tag", r"\L\T\s+[a-z_]+\s*=\s*\Q"),
    FormatRow("tool_tag", r"\L\T\s*(/\G|\G\s*\L/\T)"),
    FormatRow("tool_tag", r"\L\T\G[^<>]*\L/\T\G", lenient_position=_SENTENCE),
    FormatRow("tool_result", r"\L ?" + _RESULT + r"\A\G\s*(\{\s*(\Q|\})|\[\s*([{\]]|\Q)|\T)"),
    FormatRow("tool_result", r"\L ?" + _RESULT + r"\A\G\s*\L(result|output|tool_name|name|\T)\A\G"),
)

# The rest of calls whose opening tag is missing.
CLOSERS = (
    FormatRow(
        "hermes_json", r"\W\G\s*(\[\s*)?\{\s*\Q(name|tool|tool_name|function)\Q\s*:", _SENTENCE
    ),
    FormatRow(
        "orphan_close",
        r"\L ?\P?parameter\s+name\s*=[^<>]*\G[^<>]*\L/\P?parameter\G\s*\L/\P?(invoke|function|\W)",
    ),
    FormatRow("orphan_close", r"\L/\P?(parameter|param|arg_value)\G\s*\L/\P?§(invoke|\W)\A\G"),
    FormatRow("orphan_close", r"\L/(parameter|param)\G\s*\L/function\G§\s*\L/\W"),
    FormatRow("orphan_close", r"\L/[a-z_]+\G\s*\L/\P?invoke\G§\s*\L/\P?\W"),
    FormatRow("orphan_close", r"\L/(\Pinvoke|invoke|function)\G\s*\L/\P?§\W\A\G"),
    FormatRow("orphan_close", r"\L/\P?(invoke|\W)\G§\s*\L/?\P?(invoke|\W)"),
    FormatRow("orphan_close", r"\L/\P?(invoke|\W)\G[ \t]*\n", _LINE),
)
