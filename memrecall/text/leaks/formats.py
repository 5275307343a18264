r"""The table of formats in which models write tool calls as text. A new family is a new row.

`patterns.py` defines the language. A row matches the shortest text that prose never contains;
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

from dataclasses import dataclass, replace
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

# Formats that only the name of a registered tool distinguishes from prose and data.
_CODE = r"(await )?(print\()?(await )?((default_api|functions|tools)\.)?"
_REST = r"([^\"'“()]|\S)*"  # of the arguments
_KEYWORDS = r"\(§\s*([A-Za-z_]+\s*=|\{)" + _REST
_VALUES = r"\(§\s*(\S|\[)" + _REST
_NOTHING = r"\(§\s*"
# In `f(x=1) returns …` the call is the subject of a sentence: no predicate may follow it.
_PREDICATES = ("返回", "会返", "用于", "表示", "可以", "能够")
_FIRSTS = "".join(word[0] for word in _PREDICATES)
_OTHERS = "|".join(f"{word[0]}[^{word[1]}]" for word in _PREDICATES)
_END = rf"(\(|\)([ \t]*([^a-z \t:：—–{_FIRSTS}]|{_OTHERS}|\T\()|[a-z]))"
_ENDS_LINE = r"(\(|\)[ \t]*(\n|[;,]?[ \t]*\T\())"
_ENDS_ITEM = r"(\(|\)\s*([^\](a-z\s]|\][^(]))"  # `[f()](…)` is a link
_ASSIGNMENT = (
    r"((let|const|var) )?(res|out|ans|data|mem|event|info|recall|found|history|context|ret|tool"
    r"|[rx_])[a-z0-9_]*\s?=\s?"
)
_LABEL = (
    r"(Action|Call|Tool|Function|Tool\Ucall|Function\Ucall|Tool\Uname"
    r"|工具|工具名称?|动作|行动|调用|调用工具)\s*[:：]\s*"
)
_ANNOUNCEMENT = (
    r"\[?(Calling|Using|正在调用|调用|使用)\s*((the )?(tool|function)|工具|函数)?\s*[:：]?\s*`?"
)
_ARGUMENTS = (
    r"((Action|Tool|Function)[ _]?)?(Input|Arguments?|Args|Parameters|参数|输入|动作输入|行动输入)"
)
NAMED = (
    FormatRow("functools", r"functools\s?(\[\s*)?\{\s*\Q", _WORD),
    FormatRow(
        "function_name",
        r"functions\.\T(\(\s*(\{|\Q|[a-z_]+\s*=|\))|\s*((json|code)\s?)?\{\s*(\Q|\}))",
        _WORD,
    ),
    *(
        FormatRow(
            "pythonic",
            before + r"\T" + arguments + end,
            start_position,
            exact=True,
            may_exceed_limit=True,
        )
        for before, arguments, end, start_position in (
            (r"\[\s*", _KEYWORDS, _ENDS_ITEM, _ANY),
            (r"\[\s*", _VALUES, _ENDS_ITEM, _ANY),
            (r"\[\s*", _NOTHING, _ENDS_ITEM, _ANY),
            (_CODE, _KEYWORDS, _ENDS_LINE, _SENTENCE),
            (_CODE, _KEYWORDS, _END, _LINE),
            (_CODE, _VALUES, _ENDS_LINE, _SENTENCE),
            (_CODE, _NOTHING, _ENDS_LINE, _LINE),
            (_CODE, _VALUES, _END, _START),
            (_CODE, _NOTHING, _END, _START),
        )
    ),
    FormatRow("pythonic", _ASSIGNMENT + _CODE + r"\T\(", _LINE, exact=True),
    FormatRow("pythonic", r"```tool_(code|calls?)\s*\n\s*" + _CODE + r"\T\(", _START),
    FormatRow("function_name", r"\T\T", _SENTENCE),
    FormatRow("bare_json", r"\T\s*([:：]\s*)?\{§\s*(\Q|\})", _LINE),
    FormatRow("bare_json", r"(function\s?)?\T\s*\n\s*```[a-z]*\s*\n\s*(\{|tool_call\()", _LINE),
    FormatRow("functionary", r">>>\s?\T\s*\{", _SENTENCE),
    FormatRow("mistral", r"\[(tool|function)_?calls?\]\s*(\[\s*\{|\{|\T\s*[{\[])"),
    FormatRow("pythonic", r"\[(tool|function)[ _]?calls?:\s*\T"),
    FormatRow("react", _LABEL + r"\T§\s*(\n\s*" + _ARGUMENTS + r"|[({\[])", _LINE),
    FormatRow("react", _LABEL + r"\T\s*([,，;；]\s*)?" + _ARGUMENTS + r"\s*[:：=]", _SENTENCE),
    FormatRow("react", r"Action:\s*```(json)?\s*(\[\s*)?\{\s*\Q(tool_name|action)\Q", _LINE),
    FormatRow("yaml", r"(tool|function)_calls?:\s*(-\s*)?name:\s*\Q?\T", _LINE),
    FormatRow("bare_json", r"(\[\s*)?\{\s*\Q", kind=FormatKind.JSON, lenient_position=_SENTENCE),
    FormatRow("bare_json", r"```[a-z_]*[ \t]*\n\s*(\[\s*)?\{\s*\Q", _START, kind=FormatKind.JSON),
)

CALLS = DSML + TOKENS + HARMONY + TAGS + CLOSERS + NAMED


def _lenient(row: FormatRow) -> FormatRow:
    """Return the row of lenient mode."""
    position = max(row.start_position, row.lenient_position)
    return replace(row, pattern=row.pattern + row.lenient_end, start_position=position)


def _with_tool_name(row: FormatRow) -> FormatRow:
    """Return a row that also requires the name of a registered tool, in the same paragraph."""
    if r"\T" in row.pattern:
        return row
    return replace(row, pattern=row.pattern.replace("§", "") + r"([^`~\n]|\n[^`~\n])*\T")


LENIENT_CALLS = tuple(map(_lenient, CALLS))

_FIRST_ARGUMENT = r"\(\s*(\S|\{|[a-z_]+\s*=)"
_COMMAND = FormatRow("pythonic", rf"[@/]\T({_FIRST_ARGUMENT}|[ \t]+(\{{|[a-z_]+\s*=))", _WORD)
_MARKS = TOKENS + HARMONY + TAGS
CODE_CALLS = (
    *DSML,
    *(
        _with_tool_name(row)
        for row in _MARKS
        if row.start_position is _ANY and "[]" not in row.pattern
    ),
    FormatRow("bare_json", r"(\[\s*)?\{\s*\Q", kind=FormatKind.JSON),
    FormatRow("pythonic", r"\T" + _FIRST_ARGUMENT, _LINE),
    _COMMAND,
)
"""What strict mode looks for in Markdown code."""

_FENCE = r"(```|~~~)[a-z_\-]*[ \t]*\n\s*"
STRICT_CALLS = (
    *(row for row in CALLS if row.kind is FormatKind.CALL or row.start_position is not _START),
    FormatRow("pythonic", r"```tool_(code|calls?)\s*\n\s*" + _CODE + r"\T\(", _WORD),
    FormatRow("pythonic", _FENCE + rf"({_ASSIGNMENT})?" + _CODE + r"\T\(", _LINE),
    FormatRow("pythonic", r"(\*{1,3}|__)\T(\*{1,3}|__)?" + _FIRST_ARGUMENT, _WORD),
    FormatRow("pythonic", r"\T(\*{1,3}|__)" + _FIRST_ARGUMENT, _LINE),
    FormatRow("pythonic", r"[,，] ?\T\(§" + _FIRST_ARGUMENT[2:] + _REST + _ENDS_LINE),
    _COMMAND,
    FormatRow("tool_tag", r"\L(tool|function|action|call)s\G\s*(\[\s*)?\Q?\T"),
    FormatRow("react", _ANNOUNCEMENT + r"\T`?[^\n{}<>.。]*\{§\s*(\Q|\})", _SENTENCE),
    *(replace(row, pattern=_FENCE + row.pattern, start_position=_LINE) for row in CODE_CALLS),
)
"""The rows of strict mode; a fence around a call is hidden with it."""
