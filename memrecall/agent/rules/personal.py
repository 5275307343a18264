"""Questions that only the user's own past can answer, or whose answer depends on who asks."""

import re

from memrecall.agent.rules.words import ignoring_case

FIRST_PERSON = re.compile(
    r"我|咱|\b(?:i|i'm|i've|i'd|me|my|mine|we|we've|our|ours|us)\b", re.IGNORECASE
)
_ASKED_FACT = "what|when|where|which|who|whose|how (?:old|many|much|long|often|tall|far)"

# Facts about the user, and what was done together.
OWN = (
    ignoring_case(
        rf"\b(?:{_ASKED_FACT})\b[^.?!]{{0,60}}\bmy\b",
        r"\bmy\b[^.?!]{0,60}\b(?:what|when|where|which|who)\b[^.?!]{0,20}\?",
        r"^\W*(?:is|are|was|were|does|do|did|has|have|had)\s+my\b",
        r"\b(?:who|what)\s+am\s+i\b|\bam\s+i\b|\babout me\b",
        r"\b(?:where|when|what|which|who|how many|how often|how much|how long)\s+(?:\w+\s+){0,2}?"
        r"(?:do|did|was|were|am|have|had)\s+(?:i|we)\b",
        r"(?:^|[,.;]\s*|\b(?:what|when|where|which|who|why|whether|if)\s+)"
        r"(?:did|have|had|was|were)\s+(?:i|we|you)\b",
        r"^\W*do i\s+(?!need|have to|just|use|get|install|set|add|write|make)\w+",
        r"\bi(?:'ve| have)? (?:ever|already)\b[^.!]*\?",
    ),
    re.compile(
        "我[^，。？！]{0,20}?"
        "(?:是什么|是啥|是谁|是哪|是几|是多少|叫什么|叫啥|多大|几岁|多高|在哪|住哪|哪天|几号"
        "|什么时候|多少钱|怎么称呼)"
    ),
    re.compile(
        "(?:我|我们|咱们?|你|您)[^，。？！]{0,12}过[^，。？！]{0,16}"
        "(?:什么|吗|哪|几|多少|谁|没有|没)"
    ),
    re.compile(
        "(?:什么|哪|几|多少|谁|是否|有没有|是不是)[^，。？！]{0,10}(?:我|我们|咱们?)[^，。？！]{0,10}过"
    ),
    re.compile(
        "我(?:一般|平时|通常|一直|最|都|不)?(?:喜欢|爱|讨厌|习惯|偏好|擅长|对)[^，。？！]{0,12}"
        "(?:什么|啥|哪|谁|吗|过敏)"
    ),
    re.compile(
        "我(?:平时|一般|通常|今晚|今天|明天|最近|这周|周末|每天)[^，。？！怎如]{0,8}"
        "(?:什么|几点|哪|谁|多少)"
    ),
    re.compile(
        "我是(?:谁|做什么|干什么|哪里|不是)|(?:知道|了解)我[^，。！]{0,12}(?:吗|什么|多少|哪)|关于我"
    ),
)
# Advice that depends on who asks.
FOR_ME = (
    ignoring_case(
        r"\b(?:recommend|suggest|pick|choose|plan)\b[^.?!]{0,40}\b(?:for me|me|my)\b",
        r"\bwhat should i (?!do if|use to)\w+",
        r"\bbased on what you know\b|\bfor someone like me\b",
    ),
    re.compile(
        "(?:给|帮|为)我(?:推荐|建议|选|挑|安排|规划|定制)|推荐[^，。？！]{0,12}给我|适合我"
        "|我(?:该|应该|可以)[^，。？！怎如]{1,10}(?:什么|哪)"
    ),
)
