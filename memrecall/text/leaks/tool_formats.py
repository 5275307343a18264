"""Formats that only the name of a registered tool tells from prose, and the tables of all modes."""

from dataclasses import replace

from memrecall.text.leaks.formats import (
    CLOSERS,
    DSML,
    HARMONY,
    TAGS,
    TOKENS,
    FormatKind,
    FormatRow,
    StartPosition,
)

_ANY, _WORD, _SENTENCE, _LINE, _START = StartPosition

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
