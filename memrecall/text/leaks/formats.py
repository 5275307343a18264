r"""The table of formats in which models write tool calls as text.

First the calls that their own marks tell from prose, then those that only the name of a registered
tool does, and at last reasoning, answers and the ends of turns. Tags and tokens around a registered
name need no row: `WRAPPED` takes any. A new family is a new row if it must be hidden without a
name, or has channels.

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
| `\A` | the suffix and the attributes of a tag, if it has any, but none of Vue's (`:name=`) |
| `\K` | a key of a call in JSON |
| `\H` | the word of a reasoning tag |
| `\S` | a string in quotation marks |
| `\Z` | blanks, also written as escapes |
| `\J` | the start of a JSON object, a list of them, or a list of Python calls |
"""

import re
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

# Formats that only the name of a registered tool tells from prose.
_CODE = r"(await )?(print\()?(await )?"
_TOOL_CODE = r"```tool_(code|calls?)\s*\n\s*" + _CODE
_REST = r"([^\"'“()（）]|\S)*"  # of the arguments
_KEYWORDS = r"[(（]§\s*([A-Za-z_]+\s*(=|:\s*\Q)|(\*\*)?\{)" + _REST
_VALUES = r"[(（]§\s*(\S|\[)" + _REST
_NOTHING = r"\(§\s*"
_FIRST_ARGUMENT = r"\(\s*(\S|\{|[a-z_]+\s*=)"
_COMMAND = rf"({_FIRST_ARGUMENT}|[ \t]+(\{{|[a-z_]+\s*=))"
# In `f(x=1) returns …` the call is the subject of a sentence: no predicate may follow it.
_PREDICATES = "返回|会返|用于|表示|可以|能够"
_FIRSTS = "".join(word[0] for word in _PREDICATES.split("|"))
_OTHERS = "|".join(f"{word[0]}[^{word[1]}]" for word in _PREDICATES.split("|"))
AFTER_SUBJECT = re.compile(rf"[ \t]{{0,9}}(?:[a-z:：—–→=|-]|{_PREDICATES}|([{_FIRSTS}]?\Z))")
"""What follows a span with a call that is a sentence's subject, or may still follow (group 1)."""
_END = rf"(\(|[)）]([ \t]*([^a-z \t:：—–|{_FIRSTS}]|{_OTHERS}|\T\()|[a-z]))"
_ENDS_LINE = r"(\(|[)）][ \t]*(\n|[;,]?[ \t]*\T\())"
_ENDS_ITEM = r"(\(|[)）]\s*([^\](a-z\s]|\][^(]))"  # `[f()](…)` is a link
_ASSIGNMENT = (
    r"((let|const|var) )?(res|out|ans|data|mem|event|info|recall|found|history|context|ret|tool"
    r"|[rx_])[a-z0-9_]*\s?=\s?"
)
_LABEL = (
    r"(Action|Call|Tool|Function|Tool\Ucall|Function\Ucall|Tool\Uname"
    r"|工具|工具名称?|动作|行动|调用|调用工具)\s*[:：][\s*]*"
)
# What leads to a name and from it to its arguments: `[Called function "f" with args: {`.
_VERB = (
    r"(call(s|ed|ing)?|invok(e|es|ed|ing)|using|run(ning)?|execut(e|es|ing)|(use_(mcp_)?)?tools?"
    r"|functions?|action|正在|调用|使用|执行|工具|函数|行动|动作)"
)
_LEAD = rf"{_VERB}({_VERB}|the |name|api|code|[ \n_:：=/.\-\"'*>▷⟩】\])({{])*"
_TAG = r"(name|code|python|api)\G{1,2}\s*"
_OPENING = rf"([\[(（【「《<＜*@]<?[\[({{>*! \-]*({_LEAD}|{_TAG})?|[🔧🛠⚙🔍→*]️?\s*{_LEAD})"
_GLUE = (
    r"([\s\"'*_)\]>）】」》▷⟩,，:：=;；\-]|with|and|using|args?|arguments?|param(eter)?s?|inputs?|as"
    r"|the|following|json|参数|输入|为|是|如下|传入)*"
)
# Not the declaration of a type: `{"query": string}`.
_OBJECT = r"\{§\s*(\}|\Q[^\"'“”{}]*\Q\s*:\s*(\Q|[0-9{\[\-]|true|false|null?|none)|[a-z_]+\s*:)"
_PAIR = r"([\s\"')\]>,，:：]|\s?\|)" + _GLUE + r"[a-z_]+(=[^\s=]|\s=\s*\Q)"
_ARGUMENTS = (
    r"((Action|Tool|Function)[ _]?)?(Input|Arguments?|Args|Parameters|参数|输入|动作输入|行动输入)"
)
_JSON_FENCE = r"\s*\n\s*```[a-z]*\s*\n\s*(\{|tool_call\()"
NAMED = (
    FormatRow("functools", r"functools\s?(\[\s*)?\{\s*\Q", _WORD),
    *(
        FormatRow("pythonic", start + r"\T(\.[a-z]+)?" + end, at, exact=True, may_exceed_limit=True)
        for start, end, at in (
            (r"\[\s*", _KEYWORDS + _ENDS_ITEM, _ANY),
            (r"\[\s*", rf"{_NOTHING}((\S|\[){_REST})?" + _ENDS_ITEM, _ANY),
            (r"(print\()?(default_api|functions)\.", _NOTHING + r"([)\[{a-z]|\S)", _WORD),
            (_CODE, _KEYWORDS + _END, _MARK),
            (_CODE, _VALUES + _ENDS_LINE, _MARK),
            (_CODE, _NOTHING + _ENDS_LINE, _LINE),
            (_CODE, rf"{_NOTHING}((\S|\[){_REST})?{_END}", _START),
        )
    ),
    FormatRow("pythonic", _ASSIGNMENT + _CODE + r"\T\(", _LINE, exact=True),
    FormatRow("pythonic", _TOOL_CODE + r"\T\(", _WORD, lenient_position=_LINE),
    FormatRow("function_name", r"\T\T", _SENTENCE),
    FormatRow("bare_json", r"\T(:[0-9]+\s*)?\{§\s*(\Q|\})", _WORD),
    FormatRow("bare_json", r"function\T" + _JSON_FENCE, _WORD),
    FormatRow("bare_json", r"(function )?\T[*_]*" + _JSON_FENCE, _LINE),
    FormatRow("bare_json", r"\{\s*(name|tool|function|action|tool_name)\s*:\s*\Q\T\Q"),
    FormatRow("pythonic", r"[@/]\T" + _COMMAND, _WORD, lenient_position=_SENTENCE),
    FormatRow("mistral", r"\[(tool|function)[ _]?calls?[\]:]\s*((\[\s*)?\{|\T\s*[{\[(])"),
    FormatRow("react", _LABEL + r"\T§\s*(\n[\s*]*" + _ARGUMENTS + r"|[({\[])", _LINE),
    FormatRow("react", _LABEL + r"\T\s*([,，;；]\s*)?" + _ARGUMENTS + r"\s*[:：=]", _SENTENCE),
    FormatRow("yaml", r"(tool|function)_calls?:\s*(-\s*)?name:\s*\Q?\T", _LINE),
    FormatRow("yaml", r"(tool|function|name|action)\s*[:=]\s*\Q?\T\Q?\s*\n\s*" + _ARGUMENTS, _LINE),
    FormatRow("glm", r"\T\s*\n\s*\Larg_key", _MARK),
    FormatRow("functionary", r">>>\s?\T\s*\{", _SENTENCE),
    FormatRow("tool_tag", r"\L(name|b_n)\G\s*\T\s*\L/"),
    FormatRow("harmony_stripped", r"(commentary|analysis)\s?(json|code)\s?\{\s*\Q", _LINE),
    FormatRow("named", r"\T" + _GLUE + _OBJECT, _WORD, lenient_position=_MARK),
    *(
        FormatRow("named", before + r"\T" + after, start_position)
        for before, start_position in ((_OPENING, _ANY), (_LEAD, _SENTENCE))
        for after in (_GLUE + _OBJECT, _PAIR)
    ),
    FormatRow("named", _OPENING + r"\T" + _KEYWORDS + _ENDS_ITEM, may_exceed_limit=True),
    FormatRow("named", _LEAD + r"\T" + _KEYWORDS + _ENDS_LINE, _SENTENCE, may_exceed_limit=True),
    FormatRow("named", r"(\$ ?\T\s+\Q|(\$ ?)?\T\s+((--)?[a-z_]+\s*=\s*\Q|--[a-z]))", _LINE),
    FormatRow("bare_json", r"\Q(name|tool|function)\Q\s*:\s*\Q\T\Q", _LINE),
    FormatRow("tool_tag", r"\L" + _LEAD + r"\T\Q"),
    FormatRow("bare_json", r"(\[\s*)?\{\s*\Q", kind=FormatKind.JSON, lenient_position=_SENTENCE),
    FormatRow("bare_json", r"```[a-z_]*[ \t]*\n\s*(\[\s*)?\{\s*\Q", _START, kind=FormatKind.JSON),
)

_PART = r"[^\s<>＜＞‹›\[\]{}()\"'`“”=]"  # of a tag or token
_NAME = r"[a-z_][a-z0-9_.:▁\-]*"
_TOKEN = rf"\L ?({_NAME})?\B({_PART}| {_PART})* ?\G"
_TAG_OR_TOKEN = rf"({_TOKEN}|\L{_NAME}(\s+[a-z_:\-]+=[^<>\n]*)?\G|[\[◁⟨]{_NAME}[\]▷⟩])\s*"
_ATTRIBUTE = r"\s+[a-z_:\-]+=\Q?([^<>\n]*=\Q?)?"
_TOKENS = rf"({_TOKEN}\Z[a-z_]*\s*)"
_KEY = r"([a-z_]+\s*[:=]\s*\Q?)?"
_JSON = r"(\[\s*)?\{\s*\Q[^\"'“”\n]*\Q\s*:"
_INSIDE = r"[^\[\]【】<>`\n]"  # brackets
_WORDS_BEFORE = rf"{_INSIDE}{{1,24}}[^a-z0-9_\[\]【】<>`\n]"  # of any script
_BEFORE = rf"({_WORDS_BEFORE}|\s)?"
_LABEL_TEXT = r"[^\[\]【】`\n/]{1,24}"
_CLOSED = r"[^\s\[\]【】/]{1,24}[\]】]"
_WORDS_OF_KEY = r"[^\[\]【】<>`\n:：=,，]{1,24}"
_SIGNS = r"(\L[%?#@$&*~^]|\{[%#|])"  # `<%`, `{%`: the pair ends with the same
_ORNAMENTS, _ORNAMENTS_END = r"[⟦⟨⟪⟬⦃⦅⦇⦉❬❰❲❴〖〘〚◁]", r"[⟧⟩⟫⟭⦄⦆⦈⦊❭❱❳❵〗〙〛▷]"
# A registered tool's name behind, in or between tags or tokens, whatever these are called.
WRAPPED = (
    *(
        replace(row, pattern=rf"({_TAG_OR_TOKEN})+{row.pattern}", start_position=_ANY)
        for row in NAMED
        if row.start_position <= _MARK and row.kind is FormatKind.CALL
    ),
    FormatRow("bare_json", rf"({_TAG_OR_TOKEN})+{_JSON}", kind=FormatKind.JSON),
    FormatRow("wrapped", rf"{_TOKENS}+{_KEY}\T\s*[\n{{(\[<＜]"),
    FormatRow("wrapped", rf"{_TOKENS}*\L ?\B[^<>\n]*\B ?\G[a-z_]*\s*{_KEY}\T"),
    FormatRow("wrapped", rf"{_TOKENS}*\L ?({_NAME})?\B[^<>\n]*=\s*\Q?\T\Q?[^<>\n]*\G"),
    FormatRow("wrapped", rf"{_TOKENS}*\L ?({_NAME})?\B{_PART}*\T\B?\G\s*\{{"),
    FormatRow("wrapped", rf"\L{_NAME}{_ATTRIBUTE}\T\Q?[^<>\n]*\G\s*\{{\s*\Q"),
    FormatRow(
        "wrapped",
        rf"[\[【]{_LABEL_TEXT}[\]】]\s*{_KEY}\T\s*[:：=({{\n][^\[\]【】`]*[\[【]/{_CLOSED}",
    ),
    FormatRow("wrapped", r"\[\T\][^\[\]`\n]*\[/\T\]"),
    FormatRow("wrapped", rf"[\[【]{_LEAD}\T\s*[:：]{_INSIDE}*[\]】]"),
    FormatRow(
        "wrapped", rf"[\[【]{_WORDS_BEFORE}\T\s*[,，、;；|]\s*{_WORDS_OF_KEY}[:：=]{_INSIDE}+[\]】]"
    ),
    FormatRow("wrapped", rf"\L ?({_NAME})?\B([^<>\n]*\B)? ?\T ?\B[^<>\n]*\G"),
    FormatRow("wrapped", rf"\L ?{_NAME}:{_VERB}\s[^<>\n]*=\s*\Q?\T\Q?(\s|/|\G)"),
    FormatRow(
        "wrapped", rf"\L ?{_NAME}\s([^<>\n]*\s)?(tool|function)(_name)?\s*=\s*\Q?\T\Q?(\s|/|\G)"
    ),
    FormatRow(
        "wrapped", rf"{_SIGNS}{_BEFORE}\T([^a-z0-9_<>{{}}\n][^<>{{}}\n]*)?[%?#@$&*~^|]([>}}]|&gt;)"
    ),
    FormatRow("wrapped", rf"{_ORNAMENTS}{_BEFORE}\T([^a-z0-9_\n][^\n]*)?{_ORNAMENTS_END}"),
)

CALLS = DSML + TOKENS + HARMONY + TAGS + CLOSERS + NAMED + WRAPPED
LENIENT_CALLS = tuple(
    replace(
        row,
        pattern=row.pattern + row.lenient_end,
        start_position=max(row.start_position, row.lenient_position),
    )
    for row in CALLS
)


def _with_tool_name(row: FormatRow) -> FormatRow:
    """Return a row that also requires the name of a registered tool, in the same paragraph."""
    pattern = row.pattern if r"(\N" in row.pattern else row.pattern.replace(r"\N", r"\T")
    if r"\T" in pattern:
        return replace(row, pattern=pattern)
    return replace(row, pattern=pattern.replace("§", "") + r"([^`~\n]|\n[^`~\n])*\T")


_TAGGED = (row for row in TOKENS + HARMONY + TAGS if row.start_position is _ANY)
CODE_CALLS = (
    *DSML,
    *(_with_tool_name(row) for row in _TAGGED if "[]" not in row.pattern),
    FormatRow("bare_json", r"(\[\s*)?\{\s*\Q", kind=FormatKind.JSON),
    FormatRow("pythonic", _CODE + r"\T" + _FIRST_ARGUMENT, _LINE),
    *(
        replace(row, start_position=_LINE) if row.start_position is _SENTENCE else row
        for row in TOKENS + HARMONY + NAMED
        if _ANY < row.start_position < _START and r"\T" in row.pattern and row.family != "yaml"
        if "```" not in row.pattern and not row.pattern.startswith(_ASSIGNMENT)
    ),
    *(row for row in NAMED if r"\T" in row.pattern and row.start_position is _ANY),
)
"""What strict mode looks for in Markdown code."""

_WORDS = r"([^\n{}<>.。的]|[^\n{}<>.。 ]的|\n```[a-z]*\n)*"  # `f 的参数是 {…}` is about f
_FENCE = r"(```|~~~)[a-z_\-]*[ \t]*\n\s*"
STRICT_CALLS = (
    *DSML,
    *(
        replace(row, pattern=row.pattern + row.lenient_end)
        for row in CALLS[len(DSML) :]
        if row.kind is FormatKind.CALL or row.start_position is not _START
    ),
    FormatRow("pythonic", _FENCE + rf"({_ASSIGNMENT})?" + _CODE + r"\T\(", _LINE),
    FormatRow("yaml", _FENCE + r"(([a-z_]+:\s*(-\s*)?)+\Q?\T\Q?|\T:)\s*\n", _LINE),
    FormatRow("pythonic", r"([*_]+\T[*_]*|\T[*_]+)" + _FIRST_ARGUMENT, _WORD),
    FormatRow("named", _LEAD + r"`?\T[`*]*" + _WORDS + _OBJECT, _SENTENCE),
    FormatRow("tool_tag", r"\L(tool|function|action|call)s\G\s*(\[\s*)?\Q?\T"),
    *(replace(row, pattern=_FENCE + row.pattern, start_position=_LINE) for row in CODE_CALLS),
)
"""The rows of strict mode; a fence around a call is hidden with it."""


# Reasoning, answers and the ends of turns.
MAX_AMBIGUOUS_LENGTH = 32_768  # characters without an answer after which it is reasoning


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """Reasoning between two markers, hidden always or on request.

    With channels, a call inside counts at once; otherwise only if the reasoning never ends, because
    models consider calls before they make them. Ambiguous reasoning begins like prose: it counts if
    an answer or a call of its channels follows.
    """

    family: str
    starts: tuple[tuple[str, StartPosition], ...]
    end: str
    stray_end: str = ""  # a character that follows the end outside reasoning, if it is no mention
    is_always_hidden: bool = False
    has_channels: bool = False
    exact: bool = False
    is_ambiguous: bool = False


@dataclass(frozen=True, slots=True)
class AnswerChannel:
    """A channel addressed to the reader, shown even after a call of its families.

    `is_standalone` says that its start is enough, with nothing of its families before it. Nothing
    is shown after the end of the last channel.
    """

    families: tuple[str, ...]
    begin: str
    end: str | None = None
    start_position: StartPosition = StartPosition.ANYWHERE
    is_standalone: bool = True
    is_last: bool = False


_END_TOKEN = r"\L\|(end|return)\|\G"  # noqa: S105
_LETTER = r"[^ -@[-`{-~\s，。；：！？、（）《》“”‘’…—]"
_SENTENCE_START = r"([A-Z][A-Za-z']*,? [a-z]|[^ -~\s，。；：！？、（）《》“”‘’…—])"  # a sentence
# A tag that is only mentioned is followed by punctuation, by a blank and a small letter, or by
# Chinese words that no reasoning begins with: `<think> 标签`, `<think> 和 </think> 之间`.
_PUNCTUATION = r".,;:!?)\]\"'”’|，。；：！？、）》"
_MENTION_CHARACTERS = "和与或及的块等"
# A first character, and those that may follow it.
_MENTION_WORDS = (
    *("标签记识", "之间后前内中外", "里的面是边", "中的间是", "内的部容", "后的面"),
    *("表示明", "用于来", "这对种", "符号", "部分", "是推思指用"),
)
_MENTION_FIRSTS = _MENTION_CHARACTERS + "".join(word[0] for word in _MENTION_WORDS)
_MENTION_OTHERS = "|".join(f"{word[0]}[^{word[1:]}]" for word in _MENTION_WORDS)
_REASONING_START = (
    rf"§(\s*\n|[^\s{_PUNCTUATION}{_MENTION_FIRSTS}]"
    rf"|[ \t]+[^a-z\s|{_MENTION_FIRSTS}]|[ \t]*({_MENTION_OTHERS}))"
)
_AFTER_STRAY_END = rf"§[^{_PUNCTUATION}{_MENTION_CHARACTERS}标之里]"
REASONING_FORMATS = (
    ReasoningFormat(
        "harmony",
        ((START_TOKEN + r"\L\|channel\|\G\s*analysis\s*\L\|message\|\G", _ANY),),
        _END_TOKEN,
        is_always_hidden=True,
        has_channels=True,
    ),
    ReasoningFormat(
        "harmony_stripped",
        (
            (r"(analysis|commentary)(\s*\n\s*)?" + _LETTER, _START),
            (r"(analysis|commentary)\s*\n\s*" + _SENTENCE_START, _LINE),
            (r"(analysis|commentary)" + _SENTENCE_START, _SENTENCE),
        ),
        _END_TOKEN,
        is_always_hidden=True,
        has_channels=True,
        exact=True,
        is_ambiguous=True,
    ),
    ReasoningFormat(
        "kimi_k3",
        ((r"\L\|open\|\Gthink\L\|sep\|\G", _ANY),),
        r"\L\|close\|\Gthink\L\|sep\|\G",
        is_always_hidden=True,
    ),
    ReasoningFormat(
        "muse",
        (
            (r"\L\|start\|\Gassistant to=self\L\|message\|\G", _ANY),
            (r"to=self\L\|message\|\G", _LINE),
        ),
        r"\L\|eom\|\G",
        is_always_hidden=True,
    ),
    ReasoningFormat(
        "inkling",
        ((r"\L\|content_thinking\|\G", _ANY),),
        r"\L\|end_message\|\G",
        is_always_hidden=True,
    ),
    ReasoningFormat(
        "think",
        (
            (r"\L\H\A\G" + _REASONING_START, _LINE),
            (r"\L\H\G(\s*\n|[A-Za-z])", _ANY),
            (r"\L[a-z]+:\H\G", _ANY),
        ),
        r"\L/([a-z]+:)?\H\A\G",
        _AFTER_STRAY_END,
        exact=True,
    ),
    ReasoningFormat(
        "mistral",
        ((r"\[THINK\]" + _REASONING_START, _ANY),),
        r"\[/THINK\]",
        _AFTER_STRAY_END,
        exact=True,
    ),
    ReasoningFormat("gemma4", ((r"\L\|channel\Gthought", _ANY),), r"\Lchannel\|\G"),
    ReasoningFormat("cohere", ((r"\L\|START_THINKING\|\G", _ANY),), r"\L\|END_THINKING\|\G"),
    ReasoningFormat("kimi_vl", (("◁think▷", _ANY),), "◁/think▷"),
    ReasoningFormat("apertus", ((r"\L\|inner_prefix\|\G", _ANY),), r"\L\|inner_suffix\|\G"),
    ReasoningFormat(
        "openthinker", ((r"\L\|begin_of_thought\|\G", _ANY),), r"\L\|end_of_thought\|\G"
    ),
)

TAG_MENTION = re.compile(r"[<＜](?:think|thinking|thought|reasoning)[>＞]|\[THINK\]", re.IGNORECASE)
"""A reasoning tag that begins no reasoning: the text only mentions it."""

_HARMONIES = ("harmony", "harmony_stripped")
ANSWERS = (
    AnswerChannel(
        _HARMONIES,
        START_TOKEN + r"\L\|channel\|\G\s*final\s*(\L\|constrain\|\G\s*[a-z]*\s*)?\L\|message\|\G",
        _END_TOKEN,
        is_last=True,
    ),
    AnswerChannel(
        ("preamble",),  # not a family of calls: it announces one, so it is not shown after one
        START_TOKEN + r"\L\|channel\|\G\s*commentary\s*\L\|message\|\G\s*[^{\s]",
        _END_TOKEN,
    ),
    AnswerChannel(_HARMONIES, r"assistant\s?final", is_standalone=False),
    AnswerChannel(_HARMONIES, r"assistantfinal", start_position=_START),
    AnswerChannel(
        ("kimi_k3",),
        r"\L\|open\|\Gresponse\L\|sep\|\G",
        r"\L\|close\|\G(response|message)\L\|sep\|\G",
    ),
    AnswerChannel(
        ("muse",), r"(\L\|start\|\Gassistant )?to=user\L\|message\|\G", r"\L\|eo[mt]\|\G", _LINE
    ),
    AnswerChannel(
        ("inkling",), r"(\L\|message_model\|\G)?\L\|content_text\|\G", r"\L\|end_message\|\G"
    ),
    AnswerChannel(
        ("functionary",), r"(\L\|from\|\Gassistant\s*)?\L\|recipient\|\Gall\s*\L\|content\|\G"
    ),
    AnswerChannel(("cohere",), r"\L\|START_(RESPONSE|TEXT)\|\G", r"\L\|END_(RESPONSE|TEXT)\|\G"),
)

_TURN_END = (
    r"(\L(\B?([a-z]+:)?(eos|eo[tm]_id|im_end|end[_▁]?of[_▁]?(turn|text|sentence)(_token)?)\B?"
    r"|\B(eot|user|observation|ipython)\B|turn\|)\G|\[(\|endofturn\|\]|e~\[)"
    r"|\L\B(start_header_id|im_start)\B\G(user|ipython|tool))"
)
# An end is followed by nothing else on its line, by another token or directly by a word; after the
# end of a sentence by any words that do not make it the subject of one.
_NEXT_TURN = r"§([ \t\r]*(\n|\L[|｜/]|\[\||\L(start_of_turn|s)\G|\[/?INST)|[a-z0-9])"
_NEXT_SENTENCE = rf"[ \t]*[^\s<＜‹&\[*_{_PUNCTUATION}{_MENTION_CHARACTERS}是表标]"
TURN_ENDS = (
    FormatRow("struck", r"\Ls\G", kind=FormatKind.STRUCK),  # `<s>10</s>` is struck out in HTML
    *(
        FormatRow(family, token + after, position, FormatKind.END)
        for after, position in ((_NEXT_TURN, _ANY), (_NEXT_SENTENCE, _MARK))
        for family, token in (("end", _TURN_END), ("harmony", _END_TOKEN), ("struck", r"\L/s\G"))
    ),
)
