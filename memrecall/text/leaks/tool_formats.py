"""Formats that only the name of a registered tool tells from prose, and the tables of all modes."""

import re
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

_ANY, _WORD, _MARK, _SENTENCE, _LINE, _START = StartPosition

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


def _lenient(row: FormatRow) -> FormatRow:
    """Return the row of lenient mode."""
    position = max(row.start_position, row.lenient_position)
    return replace(row, pattern=row.pattern + row.lenient_end, start_position=position)


def _with_tool_name(row: FormatRow) -> FormatRow:
    """Return a row that also requires the name of a registered tool, in the same paragraph."""
    pattern = row.pattern if r"(\N" in row.pattern else row.pattern.replace(r"\N", r"\T")
    if r"\T" in pattern:
        return replace(row, pattern=pattern)
    return replace(row, pattern=pattern.replace("§", "") + r"([^`~\n]|\n[^`~\n])*\T")


LENIENT_CALLS = tuple(map(_lenient, CALLS))

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
