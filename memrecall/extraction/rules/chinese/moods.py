"""What a Chinese sentence does not assert: questions, suppositions, reports, guesses, requests."""

import re
from collections.abc import Iterator

from memrecall.extraction.rules.chinese.clauses import split_clauses, turn_round

_ASKS = re.compile(
    "[吗么嘛]$|呢$|(?<!没)(?<!没有)什么(?!都|也|的)|怎么(?!也|都)|怎样"
    "|哪[里儿个些天家位款]|(?<![无论])谁(?!都|也)|几(?:个|点|号|岁|次)(?!月|人)|多少"
    "|为什么|为何|如何|是不是|有没有|能不能|可不可以|要不要"
    "|好不好|会不会|该不该|是否|行不行|对不对|啥|咋|多久|多大|多远"
)
_TAG = re.compile(
    "(?:[，, ]|^)(?:你说|我说得)?(?:对吗|对吧|是吗|是吧|对不对|是不是|没错吧|记得吗"
    "|还记得吗|好吗|行吗|可以吗|你说呢|知道吗)$"
)
_SUPPOSES = re.compile(
    "如果|要是|假如|假设|假使|倘若|若是|万一|的话$|的话[，,]|的话就|除非|就算|即使|哪怕"
    "|设想|想象一下|假装|假定|比如说我|打个比方|恨不得|多希望|要不是|早知道|幻想"
)
_GUESSES = re.compile(
    "可能|也许|大概会|说不定|好像|似乎|估计|没准|或许|不确定|不一定|开玩笑|骗你的"
)
_JOKES = re.compile("开玩笑的|逗你的|骗你的|说着玩")
_REPORTS = re.compile(
    "^(?!我(?:说|觉得))(?:[^，]{0,8}?)(?:(?<![小会能传])说(?!错|明|话|法|服|好|起来|不|得|是"
    "|[^，]{1,4}[语话文])|告诉我|跟我说"
    "|问我|写道|写着|认为|听说|据说|传闻|声称|建议我|劝我|夸我|骂我|以为|提到)"
    "|^(?:听说|据说|网上|新闻|书上|文章|歌词|台词|有人|人家|别人)"
)
_REQUESTS = re.compile(
    "^(?:请|麻烦|帮我|帮忙|帮|给我|替我|教我|(?:能|可以|可不可以|能不能)(?:帮|给|告诉"
    "|推荐|再|教|说|解释|介绍)|推荐|介绍一?下?|写(?!作|小说|了|完)"
    "|生成|翻译|总结|解释|告诉我|查(?!出)|搜|找(?:一下|找|个|一个|几)|列(?:出|一)|画(?:一"
    "|个|张)|讲(?:一|讲|个)|说说|看看|来(?:一|个|点|首|段|几))"
)


# Clauses that only lead to another one.
_ASIDE = re.compile(
    "^(?:比如|例如|譬如|除了|像|关于|至于|对于|根据|按照)|(?:的时候|之后|以后|之前)$"
)


def asserted(text: str, *, asks: bool) -> Iterator[str]:
    """The clauses of a sentence that it asserts."""
    if _SUPPOSES.search(text) or _JOKES.search(text):
        return
    clauses = list(split_clauses(text))
    if asks and clauses:
        if _TAG.search(text):
            return
        clauses.pop()
    for clause in clauses:
        if _REPORTS.match(clause):
            return  # what follows is what somebody said
        if not (
            _ASIDE.search(clause)
            or _ASKS.search(clause)
            or _GUESSES.search(clause)
            or _REQUESTS.match(clause)
        ):
            yield turn_round(clause)
