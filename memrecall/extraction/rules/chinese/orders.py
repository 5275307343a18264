"""What the assistant is told to do from now on, to forget or to remember, in Chinese."""

import re

_TONGUE = (
    "中文|英文|英语|汉语|普通话|粤语|日语|日文|法语|德语|韩语|西班牙语|繁体(?:中文|字)?"
    "|简体(?:中文|字)?|双语|文言文|白话|大白话"
)
_STYLE = (
    "表情(?:符号|包)?|emoji|Emoji|markdown|Markdown|列表|表格|术语|客套话?|废话|寒暄"
    "|感叹号|标题|加粗|代码注释|注释|敬语|语气词|官话|套话|英文缩写|缩写"
)
_WHEN = (
    "以后|今后|从现在(?:起|开始)|从今天(?:起|开始)|从今(?:往后|以后)|往后|之后"
    "|接下来(?:都|一直)|每次(?:回答|回复|都|给|写|推荐)"
)
_ALWAYS = (
    "始终|总是|一直|一律|永远|务必|统一(?=用(?:中|英|简|繁|日)|回答|回复|称呼)|都要|都用|只用"
    "|全部用|默认"
)
_PLEASE = "(?:请|麻烦|希望)?你?"
# How an order that lasts is given; the group is what shall be done.
_ORDERS = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("when", f"{_PLEASE}(?:{_WHEN})[，,]?(?P<what>.+)"),
        (
            "always",
            f"{_PLEASE}(?P<what>(?:[^，我你他她]{{0,5}}?)(?:{_ALWAYS})(?:请|都|要)?"
            "(?:用|以|叫|先|给|按|使用|回答|回复|保持|称呼|说|写).+)",
        ),
        (
            "stop",
            f"{_PLEASE}(?P<what>(?:别|不要|不用|不许|禁止|少|避免)(?:再|总|老)?(?:给我)?"
            f"(?:用|加|带|说|写|发|使用|出现|放|讲)?[^，]{{0,4}}(?:{_STYLE}).*)",
        ),
        (
            "again",
            f"{_PLEASE}(?P<what>(?:别|不要)再(?:用|叫|说|给|问|提|发|推荐|回答|道歉|重复|加|写"
            f"|这么|这样)[^，]*)",
        ),
        (
            "cease",
            "你?(?:能不能|可不可以|可以)?(?P<what>别(?:老|总|一直|老是|总是)[^，]{2,}?)(?:吗|了)?$",
        ),
        (
            "only",
            "(?P<what>(?:直接|只)(?:给|发|写|说)[^，]{1,8}[，,](?:不用|别|不要|无需|不需要).+)",
        ),
        (
            "first",
            "(?P<what>[^，我]{2,12}(?:之前|前)[，,]?(?:请|都|要|必须)*先(?:问|跟我|告诉|征求|让我"
            "|向我).+)",
        ),
        (
            "tongue",
            f"{_PLEASE}(?P<what>(?:都|就|只|全程)?(?:用|说|讲|使用)(?:{_TONGUE})(?:来)?(?:回答|回复"
            "|跟我|和我|对话|交流|聊|作答|说|写|沟通|吧|就行|就好).*)",
        ),
        (
            "tongue",
            f"{_PLEASE}(?P<what>(?:跟我|和我|对我)(?:说话|聊天|交流|对话)(?:请|要|都|就)*(?:用|说"
            f"|讲)"
            f"(?:{_TONGUE}).*)",
        ),
        ("call", "(?:请|麻烦|你)?(?:可以|就)?(?P<what>(?:叫|称呼|喊)我.{1,12})"),
        (
            "keep",
            "(?:请|麻烦|希望)?(?:你的?)?(?P<what>(?:回答|回复|解释|答案|说话|输出)(?:的时候)?"
            "(?:要|请|尽量|得|应该|最好|都)?(?:尽量|保持|更|再)?(?:简短|简洁|精简|详细|口语|正式"
            "|直接"
            "|短|控制在|不超过|少于|具体|专业|通俗|分点|先给|先说|不要|别).*)",
        ),
        (
            "when_i",
            "(?P<what>(?:每次|每当|当|只要)我(?:问|说|发|提到|让|贴|给|写).+"
            "|我(?:问|说|发|提到|让你|贴|给你|要)[^，]{0,10}(?:的时候|时)[，,].+)",
        ),
        (
            "assume",
            "(?:请|麻烦|你)*(?:就|可以)?(?P<what>(?:把我当成?作?|当我是|假设我是)(?:一?个)?(?:完全的?)?(?:新手|小白"
            "|初学者|外行|小学生|零基础|专家|内行).*)",
        ),
        ("remind", "(?:请|麻烦|记得)?(?P<what>提醒我.+)"),
        (
            "want",
            "我?(?:希望|要求|需要|想让)你(?P<what>(?:能|可以|要|以后|每次|始终|总是|扮演|回答|用"
            "|称呼"
            "|叫|像|保持|直接|先|更|简).+)",
        ),
    )
)
_ONCE = re.compile("这次|这一次|这回|这段|这篇|这个|这里|本次|暂时|先这样|这句")
_FIELDS = (
    ("reply_language", re.compile(f"(?:{_TONGUE})")),
    ("nickname", re.compile("(?:叫|称呼|喊)我")),
    ("reply_length", re.compile("简短|简洁|精简|详细|字以内|字左右|不超过|长一点|短一点|太长")),
    ("units", re.compile("公里|英里|摄氏|华氏|公制|英制|24小时制|12小时制")),
)
_FORGET = re.compile(
    "^(?:请|麻烦|帮我|你|把|可以)*(?:忘掉|忘了|忘记|删掉|删除|清除|去掉|别记(?:住|得)?"
    "|不要(?:再)?记(?:住|得|着)?)(?:关于)?(?:我(?=之前|刚才|刚刚|上次|说|讲|提|跟"
    "|和))?(?:之前|刚才|刚刚|上次)?(?:(?:跟你|和你)?(?:说|讲|提"
    "|告诉你)过?的?)?(?P<what>.+?)(?:这件事|这事|的事情?|的信息|的记录|吧|的记忆|这一点"
    "|这回事)*$"
    "|^(?:请|麻烦|帮我)?把(?P<that>.+?)(?:的(?:信息|记录|记忆))?(?:忘掉|忘了|删掉|删除"
    "|删了|清除|去掉)(?:吧|了)?$"
)
_FIRST = re.compile("(?:之前|前)[，,]?(?:请|都|要|必须)*先")
_I_FORGOT = re.compile("^我?(?:忘了|忘记)(?!我)")
_REMEMBER = re.compile(
    "^(?:请|麻烦|你|要)*(?:帮我|给我)?(?:记住|记一下|记下来?|记好|备注一下"
    "|备注(?=[:：，,])|记个备注|记着)(?:了|哈|啊|哦)?(?:这(?:件事|个"
    "|一点))?[，,：:\\s]*(?P<what>.+)"
)


def read_order(text: str) -> tuple[str, str, str | None] | None:
    """A lasting instruction: its words, how it was said, and its slot; None if it is none."""
    found = ((kind, pattern.match(text)) for kind, pattern in _ORDERS)
    kind, match = next(((kind, match) for kind, match in found if match), ("", None))
    if match is None:
        return None
    what = match["what"]
    if kind != "when" and _ONCE.search(text):
        return None
    if kind == "when" and (_NO_ORDER.match(what) or not _DOES.search(what)):
        return None
    field = next((name for name, pattern in _FIELDS if pattern.search(what)), None)
    return text, kind, field


_NO_ORDER = re.compile("我(?!问|说|发)|[他她它]|想|要(?:去|学|考)")
_DOES = re.compile(
    "^(?:请|都|你|就|要|每次|我问|我说)*(?:请|用|叫|别|不要|不用|只|先|回答|回复|给|称呼"
    "|喊|写|说|按|尽量|记得|少|多|直接|推荐|称|以|把|保持|问)"
)


def phrase_order(text: str, kind: str) -> str:
    """The instruction as what the assistant shall do."""
    bare = re.sub("^(?:请|麻烦|希望|要求|需要|想让|我希望|我要求|我需要|我想让|记得)+", "", text)
    bare = re.sub("^你?(?:能不能|可不可以|可以|的)?", "", bare)
    bare = re.sub("(?<=后)[，,]?请|(?<=[起始])[，,]?请", "", bare)
    return re.sub("(?:吧|哦|啊|哈|呀|谢谢|好吗|可以吗)+$", "", bare)


_CHOICE = re.compile(
    "^(?P<what>(?!我|你|他|她)[^，]{0,10}?)(?:那就|就|还是)(?P<verb>用|选|定|按|走|去"
    "|叫)(?P<value>(?!这样|行|好|算)[^，]{1,20}?)(?:吧|好了|了)$"
)


def read_choice(text: str) -> str | None:
    """What 就用…吧 settles, as what was decided."""
    match = _CHOICE.match(text)
    return f"{match['what']}{match['verb']}{match['value']}" if match else None


def read_forget(text: str) -> str | None:
    """What the assistant is told to forget, if it is said what."""
    match = _FORGET.match(text)
    if match is None or _I_FORGOT.match(text) or _FIRST.search(text):
        return None
    what = (match["what"] or match["that"] or "").strip("，, ")
    return (
        None
        if not what or re.fullmatch("它|这个|那个|一切|所有|全部|都|这些|吧|了|刚才", what)
        else what
    )


def read_remember(text: str) -> str | None:
    """What the assistant is told to remember."""
    match = _REMEMBER.match(text)
    return match["what"].strip("，,：: ") if match else None
