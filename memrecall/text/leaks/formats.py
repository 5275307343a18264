r"""The forms in which models write tool calls as text: one row each. A new family is a row here.

`patterns.py` has the language. A row matches the least that no prose has: everything from its first
character on is hidden. `§` stands where a text that ends has been cut off inside a call. Macros:

| macro | stands for |
|---|---|
| `\L` `\G` | `<` and `>`, in either width or escaped |
| `\B` | a bar of the many in use: `|`, `｜`, `‖` … |
| `\U` | what joins two words: `_`, `▁`, `-`, a blank, or nothing |
| `\Q` | a quotation mark |
| `\N` | the name of any tool |
| `\T` | the name of a registered tool; without one such a row matches nothing |
| `\W` | the words of a wrapper: `tool_call`, `function_calls`, `tool_use` … |
| `\P` | a name space (`minimax:`, `seed:` …) or a maker's prefix |
| `\A` | the suffix and the attributes of a tag, if it has any |
| `\H` | the word of a tag around thoughts |
| `\S` | a string in quotation marks |
| `\J` | how a JSON object, a list of them, or a list of Python calls begins |
"""

import re
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
    "J": r"(\{{1,2}\s*(\Q|[a-z_]+\s*[:=])|\[\s*(\{\s*\Q|\N\())",
}


class StartPosition(IntEnum):
    """Where a form may begin. What may begin anywhere may begin at a word, and so on."""

    ANYWHERE = 0
    WORD = 1  # where no Latin word goes on
    SENTENCE = 2  # at the first word of a sentence, or behind a colon
    LINE = 3  # at the first word of a line
    START = 4  # at the first word of the answer


class Kind(Enum):
    """What to do about a form."""

    CALL = "call"  # it and the rest are hidden
    JSON = "json"  # an object that may be a call: it is read on
    THOUGHT = "thought"  # it is hidden, and what follows up to the thought's end
    TOKEN = "token"  # it is hidden, and what follows is shown  # noqa: S105


@dataclass(frozen=True, slots=True)
class Row:
    """A form of text that is not for the reader. Letters match in both cases unless `exact`.

    One that `may_be_long` counts also if it is still open where others are given up.
    """

    family: str
    pattern: str
    place: StartPosition = StartPosition.ANYWHERE
    kind: Kind = Kind.CALL
    exact: bool = False
    may_be_long: bool = False


@dataclass(frozen=True, slots=True)
class Thought:
    """Reasoning between two tokens: hidden `always`, or if the caller asks for it.

    A call inside is one at once where `channels` divide the text, and elsewhere only if the
    thought never ends: models weigh calls before they make them. One that is `doubtful` begins like
    some prose does: it is one if an answer or a call of its channels follows.
    """

    family: str
    begins: tuple[tuple[str, StartPosition], ...]
    end: str
    always: bool = False
    channels: bool = False
    exact: bool = False
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class AnswerChannel:
    """A channel addressed to the reader, recovered also after a call of its families.

    `alone` says whether its begin tells enough where nothing of its families stood before.
    """

    families: tuple[str, ...]
    begin: str
    end: str | None = None
    place: StartPosition = StartPosition.ANYWHERE
    alone: bool = True


_ANY, _WORD, _SENTENCE, _LINE, _START = StartPosition

# Control tokens: no prose outside code has them.
TOKENS = (
    Row("deepseek_dsml", r"\L ?/? ?\B{1,4} ?/?DS§ML ?\B"),
    Row("deepseek_dsml", r"\L ?/?DSML ?/?(\W|invoke|parameter)"),
    Row("deepseek_dsml", r"｜DSML｜ ?/?(tool|function|invoke|parameter|calls)"),
    Row("deepseek_dsml", r"\B{1,4}DSML\B{1,4}/?(\W ?\G|(invoke|parameter)\s+name\s*=)"),
    Row("deepseek_v3", r"\L ?/?｜{1,2} ?tool§\U(calls?|sep|outputs?)"),
    Row(
        "deepseek_v3",
        r"(｜tool[_▁ ]|\Btool▁)(calls?[_▁ ](begin|end)|sep|outputs?[_▁ ](begin|end))\B",
    ),
    Row("deepseek_v3", r"\L ?/?\B{1,2} ?tool▁§(calls?|sep|outputs?)"),
    Row("kimi_k2", r"\L ?\|{1,2} ?tool_calls?_§(section_|argument_)?(begin|end)"),
    Row("kimi_k2", r"functions\.\N:[0-9]+\s*\{", _WORD),
    Row("kimi_k3", r"\L\|(open|close)\|\G§\s*(tools|call|argument)"),
    Row("lfm2", r"\L\|tool_call_§start\|\G"),
    Row("granite", r"\L\|tool_call§\|\G"),
    Row("gemma4", r"\L\|tool_call§\G"),
    Row("gemma4", r"\Ltool_call\|§\G"),
    Row("gemma4", r"\L\|\"§\|\G"),
    Row("gemma4", r"call:\T\{", _WORD),
    Row("gemma4", r"call:\N\{[a-z_]+:\L(\||escape\G)", _WORD),
    Row("llama", r"\L\|python_§(tag|start|end)\|\G"),
    Row("internlm", r"\L\|action_§(start|end)\|\G"),
    Row("internlm", r"\L\|(plugin|interpreter)§\|\G"),
    Row("cohere", r"\L\|(START|END)_ACTION§\|\G"),
    Row("apertus", r"\L\|tools_§(prefix|suffix)\|\G"),
    Row("gigachat", r"\L\|function_call§\|\G"),
    Row("gigachat", r"function call\L\|role_sep\|\G", _WORD),
    Row("inkling", r"\L\|content_invoke_§tool[a-z_]*\|\G"),
    Row("minimax_m3", r"\]\L\]mini§max\[\G\["),
    Row("mistral", r"\[/?(END_)?TOOL_§(CALLS?|RESULTS?|USE|REQUEST)\]", exact=True),
    Row("mistral", r"\[(ARGS|CALL_ID)\][a-zA-Z0-9]*(\[ARGS\])?\s*\{", exact=True),
    Row("mistral", r"\T\s?\[(ARGS|CALL_ID)\]", _SENTENCE, exact=True),
    Row("qwen_agent", r"✿(FUNCTION|ARGS|RESULT)✿", exact=True),
    Row("functionary", r"(\L\|from\|\Gassistant\s*)?\L\|recipient\|\G\s*([^a\s]|a[^l\s])"),
    Row(
        "control_token",
        r"\L ?/?\B{1,2} ?/?(tool|function|invoke)s?[_▁\- ]§[a-z]+([_▁\- ][a-z]+)* ?\B{0,2} ?\G",
    ),
    Row("control_token", r"\L ?/?\B{1,2} ?/?(tool|function)(call|use)§[a-z_▁]* ?\B{0,2} ?\G"),
)

_START_TOKEN = r"(\L\|start\|\G(assistant)?\s*)?"  # noqa: S105
HARMONY = (
    Row("harmony", _START_TOKEN + r"\L\|channel\|\G§\s*commentary"),
    Row("harmony", _START_TOKEN + r"\L\|channel\|\G\s*analysis\s*to="),
    Row("harmony", r"\L\|start\|\Gassistant\s*to=(\T|\N\.|python|browser|container|functions)"),
    Row("harmony", r"\L\|start\|\G\s*(functions|tools?|browser|python)(\.|\s|\L)"),
    Row("harmony", r"\L\|constrain§\|\G"),
    Row("harmony", r"\L\|call\|\G"),
    Row(
        "harmony_stripped",
        r"(assistant\s?)?(commentary|analysis)\s*to=§(functions|tools|browser|container)\.",
        _WORD,
    ),
    Row("harmony_stripped", r"(assistant|commentary|analysis)\s*to=\T(\s|\L|\{)", _WORD),
    Row("harmony_stripped", r"assistant\s?to=functions\.\N", _WORD),
    Row("harmony_stripped", r"to=functions\.\N", _LINE),
    Row("harmony_stripped", r"to=functions\.\T", _SENTENCE),
    Row("harmony_stripped", r"assistant\s?commentary\s?(to=|(json\s?)?\{)", _WORD),
)

# Tags that prose may mention: a call only with the structure of one right behind.
_WRAPPER = r"\L ?\W\A\G\s*"
_BEHIND_INVOKE = r"[^<>]*[^/<>]\G(\s*[<{\[]|[a-z0-9])"
# A parameter without a value (`<param/>`) belongs to a declaration.
_BEHIND_FUNCTION = r"\s*(\L(param|arg)[^<>]*[^/<>]\G|\L/(param|arg|function)|\{)"
_RESULT = r"(tool|function)\U(response|result|output)s?"
TAGS = (
    Row("truncated_opener", r"\L(tool|function)_c§alls?\A\G\s*(\L[a-z_=]*)?[]"),
    Row("hermes_json", _WRAPPER + r"(```[a-z]*\s*)?\J"),
    Row("hermes_json", _WRAPPER + r"\Q(name|tool|function|arguments|parameters)\Q\s*:"),
    Row("hermes_json", _WRAPPER + r"\N\s*\{\s*(\Q|\})"),
    Row(
        "hermes_json",
        r"\L(tool|function|action|call|api|execute)s?\A\G\s*(\[\s*)?"
        r"\{\s*\Q(name|tool|tool_name|function|action|arguments|parameters)\Q\s*:",
    ),
    Row("glm", _WRAPPER + r"(\N\s*)?\L(tool_sep|arg_key|arg_value)"),
    Row("glm", _WRAPPER + r"\T\s*\L/\W"),
    Row("glm", r"\L ?\W\A\G(\s*\n\s*)?[a-z_][a-z0-9_.\-]*(\s*\n\s*)?\L/\W"),
    Row("glm", _WRAPPER + r"\L ?\W\A\G"),
    Row("glm", r"\Larg_key\A\G[^<>]*\L/arg_key\A\G\s*\Larg_value"),
    Row("malformed", r"\L ?\W\A\G(\s*\n\s*)?[a-z0-9][^<>]*\L/\W"),
    Row("olmo3", _WRAPPER + r"(print\()?\N\("),
    Row("xml_function", _WRAPPER + r"\L ?function"),
    Row("invoke", _WRAPPER + r"\L ?invoke"),
    Row("namespaced_xml", _WRAPPER + r"\L ?\Pinvoke"),
    Row("xml_function", _WRAPPER + r"\L ?(\T|name|tool|tool_name|parameter|arguments)(\s|/|\G)"),
    Row("xml_function", _WRAPPER + r"\L ?[a-z][a-z0-9_.\-]*\s+[a-z][a-z0-9_\-]*\s*=\s*\Q"),
    Row("xml_function", r"\L ?\W\s[^<>]*name\s*=§\s*\Q?\N\Q?[^<>]*\G"),
    Row("namespaced_xml", r"\L ?\P\W§\A\G(\s*(\L[^/\s]|[{\[`])|[a-z0-9]|\s*\n\s*\N\s*\L)"),
    Row("namespaced_xml", r"\Lend_function_call§\G"),
    Row("namespaced_xml", r"\L ?(antml|atem|minimax|seed|steptml):invoke\s[^<>]*name§\s*="),
    Row("namespaced_xml", r"\L ?\Pinvoke\s[^<>]*name\s*=\s*\Q?\T\Q?(\s|/|\G)"),
    Row("namespaced_xml", r"\L ?\Pinvoke\s[^<>]*name§\s*=" + _BEHIND_INVOKE),
    Row("invoke", r"\L ?invoke\s+name\s*=[^<>]*/\G"),
    Row("invoke", r"\L ?invoke\s[^<>]*name\s*=\s*\Q?\T\Q?\s*/\G"),
    Row("invoke", r"\L ?invoke\s[^<>]*name§\s*=" + _BEHIND_INVOKE),
    Row("qwen_bare", r"\L ?function\s*=§\s*\Q?\N\Q?\s*\G(\s*(\L[a-z/]|\{)|[a-z0-9])"),
    Row("qwen_bare", r"\L ?parameter\s*=§\s*\N\s*\G(\s*\n|[^<\n]*\L/parameter)", _LINE),
    Row("qwen_bare", r"\L ?parameter\s*=\s*\N\s*\G[^<]*\L/parameter"),
    Row("minicpm", r"\L ?function\s?name§\s*=[^<>]*\G" + _BEHIND_FUNCTION),
    Row("minicpm", r"\L ?function\s[^<>]*name§\s*=[^<>]*\G" + _BEHIND_FUNCTION),
    Row("minicpm", r"\L ?function\s[^<>]*name§\s*=\s*\Q?\T\Q?(\s|/|\G)"),
    Row("minicpm", r"\L ?param\s+name§\s*=[^<>]*\G\s*\L!\[CDATA\["),
    Row("tool_tag", r"\L(tool_name|function_name|tool|function|action|invoke|call)\G\s*\T\s*\L"),
    Row("tool_tag", r"\L(tool|function|action|invoke|call|execute|code|python)\G\s*\T\s*[({]"),
    Row("tool_tag", r"\L ?(tool|action|call|execute)\s[^<>]*name§\s*=\s*\Q?\T\Q?(\s|/|\G)"),
    Row("tool_tag", r"\L(execute_tool|use_tool|call_tool|run_tool)\G\s*(\T|\L(name|tool_name)\G)"),
    Row("tool_tag", r"\Luse_mcp_§tool\G\s*\L(server|tool)_name\G"),
    Row("tool_tag", r"\L\T\G\s*(\L[a-z]|\{\s*\Q)"),
    Row("tool_tag", r"\L\T\s+[a-z_]+\s*=\s*\Q"),
    Row("tool_tag", r"\L\T\s*(/\G|\G\s*\L/\T)"),
    Row("tool_result", r"\L ?" + _RESULT + r"\A\G\s*(\{\s*(\Q|\})|\[\s*([{\]]|\Q)|\T)"),
    Row("tool_result", r"\L ?" + _RESULT + r"\A\G\s*\L(result|output|tool_name|name|\T)\A\G"),
)

# What is left where an opener was eaten.
CLOSERS = (
    Row("hermes_json", r"\W\G\s*(\[\s*)?\{\s*\Q(name|tool|tool_name|function)\Q\s*:", _SENTENCE),
    Row(
        "orphan_close",
        r"\L ?\P?parameter\s+name\s*=[^<>]*\G[^<>]*\L/\P?parameter\G\s*\L/\P?(invoke|function|\W)",
    ),
    Row("orphan_close", r"\L/\P?(parameter|param|arg_value)\G\s*\L/\P?§(invoke|\W)\A\G"),
    Row("orphan_close", r"\L/(parameter|param)\G\s*\L/function\G§\s*\L/\W"),
    Row("orphan_close", r"\L/[a-z_]+\G\s*\L/\P?invoke\G§\s*\L/\P?\W"),
    Row("orphan_close", r"\L/(\Pinvoke|invoke|function)\G\s*\L/\P?§\W\A\G"),
    Row("orphan_close", r"\L/\P?(invoke|\W)\G§\s*\L/?\P?(invoke|\W)"),
    Row("orphan_close", r"\L/\P?(invoke|\W)\G[ \t]*\n", _LINE),
)

# Nothing but the name of a registered tool tells these from prose and data.
_CODE = r"(await )?(print\()?(await )?((default_api|functions|tools)\.)?"
_REST = r"([^\"'“()]|\S)*"  # of the arguments
_KEYWORDS = r"\(§\s*([A-Za-z_]+\s*=|\{)" + _REST
_VALUES = r"\(§\s*(\S|\[)" + _REST
_NOTHING = r"\(§\s*"


def _no_predicate(*words: str) -> str:
    """What may follow a call at the beginning of a line: no words of two signs that speak of it."""
    firsts = "".join(word[0] for word in words)
    others = "|".join(f"{word[0]}[^{word[1]}]" for word in words)
    return rf"[ \t]*([^a-z \t:：—–{firsts}]|{others}|\T\()|[a-z]"


# `f(x=1) returns …` is a sentence that has a call for its subject.
_END = r"(\(|\)(" + _no_predicate("返回", "会返", "用于", "表示", "可以", "能够") + "))"
_ENDS_LINE = r"(\(|\)[ \t]*(\n|[;,]?[ \t]*\T\())"
_ENDS_ITEM = r"(\(|\)\s*([^\](a-z\s]|\][^(]))"  # `[f()](…)` is a link
_LABEL = (
    r"(Action|Call|Tool|Function|Tool\Ucall|Function\Ucall|Tool\Uname"
    r"|工具|工具名称?|动作|行动|调用|调用工具)\s*[:：]\s*"
)
_ARGUMENTS = (
    r"((Action|Tool|Function)[ _]?)?(Input|Arguments?|Args|Parameters|参数|输入|动作输入|行动输入)"
)
NAMED = (
    Row("functools", r"functools\s?(\[\s*)?\{\s*\Q", _WORD),
    Row(
        "function_name",
        r"functions\.\T(\(\s*(\{|\Q|[a-z_]+\s*=|\))|\s*((json|code)\s?)?\{\s*(\Q|\}))",
        _WORD,
    ),
    *(
        Row("pythonic", before + r"\T" + arguments + end, place, exact=True, may_be_long=True)
        for before, arguments, end, place in (
            (r"\[\s*", _KEYWORDS, _ENDS_ITEM, _ANY),
            (r"\[\s*", _VALUES, _ENDS_ITEM, _ANY),
            (r"\[\s*", _NOTHING, _ENDS_ITEM, _ANY),
            (_CODE, _KEYWORDS, _ENDS_LINE, _SENTENCE),
            (_CODE, _KEYWORDS, _END, _LINE),
            (_CODE, _VALUES, _END, _START),
            (_CODE, _NOTHING, _END, _START),
        )
    ),
    Row("pythonic", r"```tool_(code|calls?)\s*\n\s*" + _CODE + r"\T\(", _START),
    Row("bare_json", r"\T\s*\{§\s*(\Q|\})", _LINE),
    Row("bare_json", r"(function\s?)?\T\s*\n\s*```[a-z]*\s*\n\s*(\{|tool_call\()", _LINE),
    Row("functionary", r">>>\s?\T\s*\{", _SENTENCE),
    Row("mistral", r"\[(tool|function)_?calls?\]\s*(\[\s*\{|\{|\T\s*[{\[])"),
    Row("pythonic", r"\[(tool|function)[ _]?calls?:\s*\T"),
    Row("react", _LABEL + r"\T§\s*(\n\s*" + _ARGUMENTS + r"|[({\[])", _LINE),
    Row("react", _LABEL + r"\T\s*([,，;；]\s*)?" + _ARGUMENTS + r"\s*[:：=]", _SENTENCE),
    Row("react", r"Action:\s*```(json)?\s*(\[\s*)?\{\s*\Q(tool_name|action)\Q", _LINE),
    Row("yaml", r"(tool|function)_calls?:\s*(-\s*)?name:\s*\Q?\T", _LINE),
    Row("bare_json", r"(\[\s*)?\{\s*\Q", kind=Kind.JSON),
    Row("bare_json", r"```[a-z_]*[ \t]*\n\s*(\[\s*)?\{\s*\Q", _START, kind=Kind.JSON),
)

CALLS = TOKENS + HARMONY + TAGS + CLOSERS + NAMED

_END_TOKEN = r"\L\|(end|return)\|\G"  # noqa: S105
_LETTER = r"[^ -@[-`{-~\s，。；：！？、（）《》“”‘’…—]"
_BEGUN = r"([A-Z][A-Za-z']*,? [a-z]|[^ -~\s，。；：！？、（）《》“”‘’…—])"  # a sentence
# Behind a tag that is spoken of stands a mark, or a blank and a small letter.
_THOUGHT_BEGINS = r"§(\s*\n|[^\s.,;:!?)\]\"'”’|，。；：！？、）》]|[ \t]+[^a-z\s|])"
THOUGHTS = (
    Thought(
        "harmony",
        ((_START_TOKEN + r"\L\|channel\|\G\s*analysis\s*\L\|message\|\G", _ANY),),
        _END_TOKEN,
        always=True,
        channels=True,
    ),
    Thought(
        "harmony_stripped",
        (
            (r"(analysis|commentary)(\s*\n\s*)?" + _LETTER, _START),
            (r"(analysis|commentary)\s*\n\s*" + _BEGUN, _LINE),
            (r"(analysis|commentary)" + _BEGUN, _SENTENCE),
        ),
        _END_TOKEN,
        always=True,
        channels=True,
        exact=True,
        doubtful=True,
    ),
    Thought(
        "kimi_k3",
        ((r"\L\|open\|\Gthink\L\|sep\|\G", _ANY),),
        r"\L\|close\|\Gthink\L\|sep\|\G",
        always=True,
    ),
    Thought(
        "muse",
        (
            (r"\L\|start\|\Gassistant to=self\L\|message\|\G", _ANY),
            (r"to=self\L\|message\|\G", _LINE),
        ),
        r"\L\|eom\|\G",
        always=True,
    ),
    Thought("inkling", ((r"\L\|content_thinking\|\G", _ANY),), r"\L\|end_message\|\G", always=True),
    Thought(
        "think",
        (
            (r"\L\H\A\G" + _THOUGHT_BEGINS, _LINE),
            (r"\L\H\G(\s*\n|[A-Za-z])", _ANY),
            (r"\L[a-z]+:\H\G", _ANY),
        ),
        r"\L/([a-z]+:)?\H\A\G",
        exact=True,
    ),
    Thought("mistral", ((r"\[THINK\]" + _THOUGHT_BEGINS, _ANY),), r"\[/THINK\]", exact=True),
    Thought("gemma4", ((r"\L\|channel\Gthought", _ANY),), r"\Lchannel\|\G"),
    Thought("cohere", ((r"\L\|START_THINKING\|\G", _ANY),), r"\L\|END_THINKING\|\G"),
    Thought("kimi_vl", (("◁think▷", _ANY),), "◁/think▷"),
    Thought("apertus", ((r"\L\|inner_prefix\|\G", _ANY),), r"\L\|inner_suffix\|\G"),
    Thought("openthinker", ((r"\L\|begin_of_thought\|\G", _ANY),), r"\L\|end_of_thought\|\G"),
)

TAG_TOLD = re.compile(r"[<＜](?:think|thinking|thought|reasoning)[>＞]|\[THINK\]", re.IGNORECASE)
"""A tag around thoughts, where it begins none: such a text speaks of it."""

_HARMONIES = ("harmony", "harmony_stripped")
ANSWERS = (
    AnswerChannel(
        _HARMONIES,
        _START_TOKEN + r"\L\|channel\|\G\s*final\s*(\L\|constrain\|\G\s*[a-z]*\s*)?\L\|message\|\G",
        _END_TOKEN,
    ),
    AnswerChannel(_HARMONIES, r"assistant\s?final", alone=False),
    AnswerChannel(_HARMONIES, r"assistantfinal", place=_START),
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
