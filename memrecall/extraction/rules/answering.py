"""Short answers: "Where do you live?" "Berlin." tells what "I live in Berlin." does."""

import re

from memrecall.extraction.rules.speech import Sentence

_LONGEST_WORDS = 7
_LONGEST_HAN = 14
_NOTHING = re.compile(
    r"(?:就是|是的|没错|嗯|哦|对，)[^，]{2,}|(?:no|none|nope|nothing|yes|yeah|yep|ok|okay"
    r"|sure|maybe|idk|i don't know|not really|thanks?|hi|hello|hey|bye"
    r"|没有|无|不|是|是的|好|好的|嗯+|对|不知道|不告诉你|谢谢|你好|就是这个意思|对的|没错"
    r"|随便|都行|没|可以|行|哈+)\W*",
    re.IGNORECASE,
)
_OPENING = re.compile(
    r"^(?:well|oh|um+|just|it's|it is|that's|they're|in|at|as|to|from|on|around|about"
    r"|mostly|probably|mainly"
    r"|是|在|叫|做|学|对|来自)[ ,，]*",
    re.IGNORECASE,
)
_QUESTIONS = tuple(
    (re.compile(pattern, re.IGNORECASE), template)
    for pattern, template in (
        (
            r"what(?:'s| is) your name|what should i call you|who am i (?:talking|speaking) (?:to"
            r"|with)|may i have your name",
            "My name is {}",
        ),
        (
            r"where (?:do you live|are you (?:living|based|located))|what city (?:do you live|are "
            r"you) in|which city",
            "I live in {}",
        ),
        (r"where are you (?:originally )?from|where did you grow up", "I am from {}"),
        (
            r"what do you do(?: for (?:a living|work))?\?|what(?:'s| is) your (?:job|profession"
            r"|occupation)",
            "My job is {}",
        ),
        (r"where do you work|which company|who do you work for", "I work at {}"),
        (r"how old are you|what(?:'s| is) your age", "My age is {}"),
        (
            r"when(?:'s| is) your birthday|what(?:'s| is) your birthday|when were you born",
            "My birthday is {}",
        ),
        (
            r"(?:any|have|food) (?:food )?allerg|allergic to anything|what are you allergic to",
            "I am allergic to {}",
        ),
        (r"what(?:'s| is) your favou?rite (?P<what>[\w ]+)", "My favourite {what} is {}"),
        (
            r"what(?:'s| is) (?:the name of your (?P<what>\w+)|your (?P<kin>\w+)'s name|your "
            r"(?P<pet>\w+) called)",
            "My {what} is called {}",
        ),
        (r"what (?:do|are) you study|what(?:'s| is) your major", "My major is {}"),
        (
            r"which (?:school|university|college)|where do you (?:study|go to (?:school|college"
            r"|university))",
            "My school is {}",
        ),
        (
            r"what(?:'s| is) your (?P<what>email|phone number|address|time ?zone|shoe size|budget"
            r"|height|weight)",
            "My {what} is {}",
        ),
        ("你叫什么|怎么称呼|你的名字|您贵姓|你是谁", "我叫{}"),
        ("你?住在?哪|在哪个城市|你的城市", "我住在{}"),
        ("哪里人|哪儿人|来自哪|老家在?哪", "我来自{}"),
        ("做什么工作|什么职业|从事什么|你是做什么|干什么的", "我的职业是{}"),
        ("在哪(?:里|儿)?(?:工作|上班)|哪家公司", "我在{}工作"),
        ("[你您](?:今年)?多大|几岁了?[？?]|[你您]的?年龄", "我的年龄是{}"),
        ("生日是|哪天生日|什么时候生日|生日在", "我的生日是{}"),
        ("(?:什么|有没有|哪些|食物).{0,6}过敏|过敏.{0,4}(?:什么|吗)", "我对{}过敏"),
        ("最喜欢(?:的)?(?P<what>[^是？?什么哪]{1,6})(?:是)?(?:什么|哪)", "我最喜欢的{what}是{}"),
        (
            "(?:你家?的?)?(?P<what>猫|狗|宠物|儿子|女儿|妹妹|弟弟|哥哥|姐姐|孩子).{0,3}叫什么",
            "我的{what}叫{}",
        ),
        ("什么专业|学什么", "我的专业是{}"),
        ("哪(?:所|个)(?:大学|学校)", "我的学校是{}"),
        (
            "(?P<what>邮箱|电话|手机号|地址|身高|体重|预算|鞋码)(?:是|号)?(?:多少|什么)",
            "我的{what}是{}",
        ),
    )
)


def complete(sentence: Sentence, asked: str) -> Sentence | None:
    """The short answer to what was asked before, as a whole sentence; None if it is none."""
    text = sentence.text
    size = len(text) if sentence.language == "zh" else len(text.split())
    limit = _LONGEST_HAN if sentence.language == "zh" else _LONGEST_WORDS
    if sentence.asks or size > limit or _NOTHING.fullmatch(text):
        return None
    last = re.split(r"(?<=[.!。！\n])\s*", asked.strip())[-1]
    if not last.rstrip().endswith(("?", "？")):
        return None
    for pattern, template in _QUESTIONS:
        if found := pattern.search(last):
            named = {name: word for name, word in found.groupdict().items() if word}
            what = next(iter(named.values()), "")
            answer = _OPENING.sub("", text).strip(" ,.，。")
            full = template.replace("{what}", what.strip()).replace("{}", answer)
            language = "zh" if re.search("[\u4e00-\u9fff]", full) else "en"
            return Sentence(full, asks=False, language="zh" if language == "zh" else "en")
    return None
