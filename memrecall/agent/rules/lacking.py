"""What an answer should have and a found text may lack: the person, a number, certainty."""

import re

from memrecall.agent.rules.words import any_of, chinese, english, ignoring_case

# People by what they are to somebody. 妈 is in 妈妈 and 老妈, 姐 in 姐姐 and 表姐.
_RELATIONS = (
    english(
        """
        sister,brother,mother,mum,mom,father,dad,wife,husband,son,daughter,uncle,aunt,cousin,niece
        nephew,grandma,grandmother,grandpa,grandfather,boss,manager,colleague,coworker,neighbour
        neighbor,friend,roommate,flatmate,landlord,teacher,doctor,partner,girlfriend,boyfriend,kid
        kids,child,children,baby
        """
    ),
    chinese(
        """
        姐,妹,哥,弟,妈,爸,母亲,父亲,老婆,老公,妻子,丈夫,儿子,女儿,叔,姨,舅,姑,奶奶,爷爷,外婆,外公
        老板,经理,同事,邻居,朋友,室友,房东,老师,医生,女友,男友,孩子
        """
    ),
)
_SENTENCE_START = re.compile(r"(?:^|[.?!:;\n]\s+)[\"'“(]*[A-Z][a-z]+")
_CAPITAL = re.compile(r"\b[A-Z][a-z]+\b")
_DATES = english(
    """
    Monday,Tuesday,Wednesday,Thursday,Friday,Saturday,Sunday,January,February,March,April,May,June
    July,August,September,October,November,December
    """
)
_DOUBT = (
    ignoring_case(
        r"\b(?:don't|do not|didn't|not)\s+(?:know|remember|sure|decided?|yet)\b",
        r"\b(?:no idea|haven't|hasn't|forgot|unknown|tbd|to be (?:decided|confirmed))\b",
    ),
    chinese("不知道,不清楚,还没,没定,未定,没说,不确定,没想好,忘了,不记得,待定,没问,没有问"),
)
_ASKS_NUMBER = (
    ignoring_case(
        r"\bhow\s+(?:many|much|old)\b",
        r"\b(?:number|phone|price|password|pin|port)\b",
    ),
    re.compile("多少|几岁|几点|几号|号码|电话|手机号|价格|密码|端口|账号"),
)
_SMALL = "one,two,three,four,five,six,seven,eight,nine,ten,eleven,twelve,twenty,thirty,forty,fifty"
_NUMBER = re.compile(
    r"\d|[零一二两三四五六七八九十百千万半][个次天周月年岁本位点号件只条块元毛斤米公分度人家层楼页种双套克]"
    rf"|\b(?:{any_of(_SMALL + ',hundred,half,dozen,once,twice')})\b",
    re.IGNORECASE,
)


def misses_person(asked: str, told: str) -> bool:
    """Whether a text says nothing of somebody whom the request names, by name or relation."""
    heard = told.casefold()
    if any(who.casefold() not in heard for who in _names(asked)):
        return True
    return any(
        match.group().casefold() not in heard
        for pattern in _RELATIONS
        for match in pattern.finditer(asked)
    )


def _names(text: str) -> list[str]:
    """Capitalised words within sentences."""
    starts = {match.end() for match in _SENTENCE_START.finditer(text)}
    return [
        match.group()
        for match in _CAPITAL.finditer(text)
        if match.end() not in starts and not _DATES.fullmatch(match.group())
    ]


def doubts(text: str) -> bool:
    """Whether it says that something is not known or not settled."""
    return any(pattern.search(text) for pattern in _DOUBT)


def asks_number(text: str) -> bool:
    """Whether only a number can be the answer: an amount, a price, somebody's phone."""
    return any(pattern.search(text) for pattern in _ASKS_NUMBER)


def has_number(text: str) -> bool:
    """Whether a number is in it, in digits or in words."""
    return _NUMBER.search(text) is not None
