"""Telling what a person wrote from what a machine made: code, data, logs, traces, templates."""

import re

_FENCE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_TAGGED = re.compile(
    r"<([A-Za-z_][\w:\-]*)(?:\s[^<>]*)?>.*?</\1>|<[A-Za-z_/!?][^<>\n]*>", re.DOTALL
)
_OBJECT = re.compile(r"[\[{]\s*(?:[\"'\[{\d].*[\]}]|\}|\])", re.DOTALL)
_MACHINE_LINE = re.compile(
    r"""\s*(?:
        \[?\d{4}-\d\d-\d\d[T\s]\d\d:\d\d | \[?\d\d:\d\d:\d\d
      | (?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL|TRACE)\b
      | Traceback\s\(most | File\s".*",\sline\s\d | at\s[\w.$<>]+\(.*\)
      | \w+(?:\.\w+)*(?:Error|Exception)\b:? | Exception\sin\sthread | Caused\sby:
      | [$>\#]\s?\w | [+\-]{3}\s | @@\s
      | (?:def|class|import|from|function|const|let|var|public|private|return)\s\S
      | (?:SELECT|INSERT|UPDATE|DELETE|CREATE)\s
      | [})\];]+\s*$ | \S+\s?[=:{(]\s*[\w"'({\[]*[;,{(]\s*$
    )""",
    re.VERBOSE,
)
_TEMPLATE = re.compile(
    r"\{\{\s*\w+\s*\}\}"
    r"|^\s*\#{2,}\s*(?:instructions?|input|response|context|task|output)\b"
    r"|\byou are (?:a|an|the) [^.\n]{0,80}(?:assistant|agent|expert|model|bot)\b"
    r"|\b(?:respond|reply|answer|output|return) (?:only )?(?:with|in|as) "
    r"(?:a |valid |raw |strict )*json\b"
    r"|你是(?:一个|一名|一位)?[^。\n]{0,40}(?:助手|专家|智能体|机器人|模型)"
    r"|(?:严格)?按(?:照)?(?:以下|下列|如下)[^。\n]{0,8}(?:格式|要求|步骤|规则)"
    r"|(?:只|仅)(?:返回|输出|回复)[^。\n]{0,8}(?:JSON|json|结果|数字|代码)",
    re.IGNORECASE | re.MULTILINE,
)
# A task on a text that follows it: "Translate this: …", 总结下面这段话：…
_GIVEN = re.compile(
    r"(?:following|below|this|these|下面|以下|下列|如下|这段|这句|这篇|这个|这些)"
    r"[^:：\n]{0,40}[:：\n]\s*\S"
    r"|\b(?:translate|summari[sz]e|proofread|paraphrase|rewrite)\b[^:\n]{0,60}[:\n]\s*\S"
    r"|(?:翻译|总结|概括|润色|改写|校对)[^:：\n]{0,20}[:：\n]\s*\S",
    re.IGNORECASE,
)
_MOST_MACHINE = 0.6  # of the lines; with more, the whole is machine-made


def human_part(text: str) -> str:
    """What of a message a person wrote to be answered; empty if a machine made it all."""
    if _TEMPLATE.search(text):
        return ""
    part = _TAGGED.sub(" ", _FENCE.sub(" ", text))
    part = _OBJECT.sub(" ", part)
    lines = [line for line in part.splitlines() if line.strip()]
    machine = [line for line in lines if _MACHINE_LINE.match(line)]
    if lines and len(machine) / len(lines) >= _MOST_MACHINE:
        return ""
    if machine:
        part = "\n".join(line for line in lines if line not in machine)
    given = _GIVEN.search(part)
    return (part[: given.end() - 1] if given else part).strip()
