"""Word lists and patterns that the rules share; none of them belongs to a subject area."""

import re
from collections.abc import Iterable


def alternation(phrases: str) -> str:
    """Return a regex alternation of comma- or line-separated phrases, longest first."""
    parts = [phrase.strip() for phrase in re.split(r"[,\n]", phrases) if phrase.strip()]
    return "|".join(sorted(parts, key=len, reverse=True))


def chinese_pattern(phrases: str) -> re.Pattern[str]:
    """Compile Chinese phrases, which match anywhere in a text."""
    return re.compile(alternation(phrases))


def english_pattern(phrases: str) -> re.Pattern[str]:
    """Compile English phrases, which match as whole words in any case."""
    return re.compile(rf"\b(?:{alternation(phrases)})\b", re.IGNORECASE)


def pattern_ignoring_case(*alternatives: str) -> re.Pattern[str]:
    """Compile regular expressions into one case-insensitive pattern."""
    return re.compile("|".join(alternatives), re.IGNORECASE)


def matches_any(text: str, patterns: Iterable[re.Pattern[str]]) -> bool:
    """Return True if at least one of the patterns occurs in the text."""
    return any(pattern.search(text) for pattern in patterns)


def _word_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# A time next to a verb of speech is the time of a message, not of an event.
SPEECH_VERBS_ZH = """
说,提,聊,讲,谈,讨论,商量,问,告诉,提到,提起,提及,聊到,聊起,谈到,说到,讲到,回复,回答,答应
"""
BASE_SPEECH_VERBS_EN = (
    "say,tell,mention,discuss,talk,speak,chat,ask,write,bring up,promise,explain,describe"
)
PAST_SPEECH_VERBS_EN = """
said,told,mentioned,discussed,talked,spoke,chatted,asked,answered,replied,wrote,brought up
promised,agreed,explained,described
"""
SPEECH_VERBS_EN = (
    f"{BASE_SPEECH_VERBS_EN},{PAST_SPEECH_VERBS_EN},saying,telling,mentioning,discussing,talking"
)
# What an assistant does for a user.
ASSISTANCE_VERBS_ZH = """
建议,推荐,推荐过,给我,给的,给过,发我,发给,帮我,列的,列出,写的,写给,教我,教的,整理的,总结的
生成的,安排的
"""


# Phrases around a request that do not describe its subject.
POLITE_PHRASES = (
    chinese_pattern(
        """
        请问,麻烦你,麻烦您,麻烦帮,拜托,劳驾,你还记得,您还记得,还记得,你记得,你记不记得,记不记得
        帮我查一下,帮我查查,帮我找一下,帮我找找,帮我看一下,帮我看看,帮我想想,帮我回忆一下
        帮我回忆,帮我查,帮我找,能不能告诉我,可以告诉我,能告诉我,告诉我,跟我说说,和我说说
        给我说说,我想知道,我想问一下,我想问,想问一下,我想了解,我想看,我忘了,我忘记了
        我不记得了,我不记得,我记不清了,我记不清,想不起来了,想不起来,你知道,你知不知道
        能不能,可不可以,可以吗,好吗,行吗,谢谢,多谢,对吧,对吗,是吗,来着
        """
    ),
    english_pattern(
        r"""
        please,kindly,could you,can you,would you,will you,do you remember,do you recall
        do you know,remember when,remind me,tell me,show me,let me know
        help me (?:to )?(?:find|remember|recall),i want to know,i'd like to know
        i would like to know,i wonder,i was wondering,i forgot,i forget,i can't remember
        i cannot remember,i don't remember,i don't recall,i can't recall,any idea,thanks,thank you
        thx,ok so,okay so,hey,hi,hello,by the way,btw
        """
    ),
)

# Words that do not identify a subject: verbs of asking and doing, generic nouns.
GENERIC_WORDS_ZH = _word_set(
    """
    说 说过 说好 提 提过 提到 提起 提及 聊 聊过 聊到 讲 讲过 讲到 谈 谈过 谈到 讨论 讨论过 商量
    问 问过 问题 告诉 回答 回复 答应 建议 推荐 给过 约好 定好 记得 记住 忘 忘记 忘了 知道 想 想要
    想起 觉得 看看 看 看过 找 找找 查 查查 查看 帮 帮忙 给 拿 弄 搞 做 做过 做完 做到 办 整 干 用
    来 去 去过 过去 继续 接着 接下来 往下 上次 上回 上一次 这次 那次 下次 第一次 最近 之前 以前
    先前 刚才 刚刚 当时 那时 那时候 时候 时间 东西 事情 事 事儿 内容 情况 话 话题 那个 这个 一样
    同样 照旧 老样子 按照 按 照 依照 像 是不是 有没有 什么 怎么 哪个 哪些 哪里 哪儿 谁 多少 几
    几次 几个 一下 一共 总共 所有 全部 都 请 麻烦 谢谢 你好 您好 好 好的 行 可以 应该 需要 要 改
    改成 换 换成 开始 结束 完成 处理 今天 昨天 明天 咱 咱们 我们 你们 具体 进行 得知 表示 认为
    分享 提出 描述 列举 至少 哪位 哪一 哪项 以下 选项 期间 过程 其中 主要 分别 相关 可能 根据
    通过 推断 目前为止 为止 怎样 原来 曾经 习惯 一直 总是 老 是否 还有 还 再 又 上面 上述 前面
    最初 意思 方面 有关 关于
    """
)
GENERIC_WORDS_EN = _word_set(
    """
    thing things stuff something anything everything one ones that this those these it remember
    remind recall tell told say said says saying mention mentioned discuss discussed talk talked
    talking ask asked know knew suggest suggested recommend recommended advise advised propose
    proposed show find look want wanted need needed help give gave get got let make made do did
    done doing use used go went going come came take took put try tried keep kept continue resume
    again before earlier previous previously last time times first once ago lately recently
    already still ever never always usual usually same like way kind sort please thanks thank hi
    hello hey ok okay sure yes no yeah well so many much often long old new yet also about
    according based regarding which following specific specifically main mainly likely would could
    should might may can will shall question answer list lists all every each since during day
    days week weeks month months year years today yesterday tomorrow now then when where what who
    whom whose why how back carry pick left off point fact facts particular respectively various
    people person moment minute second
    """
)

# Questions for a count, or for all of something.
QUESTIONS_FOR_ALL = (
    chinese_pattern(
        """
        几次,多少次,几回,多少回,几个,多少个,几家,几本,几位,几种,哪些,所有,全部,一共,总共
        都有什么,列出,列举,每次,前前后后,来龙去脉,前后经过,从头到尾,累计,加起来,还欠
        """
    ),
    english_pattern(
        """
        how many,how often,how much,list all,list every,all the,every time,all of,what are all
        which ones,name all,list the,so far,in total,altogether,the whole story,still owe
        """
    ),
)
QUESTION_MARKERS = (
    chinese_pattern(
        "？,什么,怎么,哪,谁,几,多少,吗,呢,何时,为何,如何,是不是,有没有,能不能,是否,啥,咋"
    ),
    pattern_ignoring_case(
        r"\?",
        r"^\W*(?:what|when|where|who|whom|whose|which|why|how|did|do|does|is|are|was|were|have|has"
        r"|can|could|would|will|should)\b",
    ),
)
# Marks of a request for what somebody asked. 请问 is polite, 问题 mostly a problem.
ASKING = (re.compile("(?<!请)问(?!题)"), english_pattern("ask,asks,asked,asking,questions?"))
# Markers of a request that is not phrased as a question.
REQUEST_MARKERS = (
    chinese_pattern(
        "想用,想要,我要,要用,需要,帮我,给我,按照,照着,照旧,沿用,继续用,还是用,换成,改成,请"
    ),
    english_pattern(
        r"""
        want,need,use,would like,i'd like,please,let's,again,same as,the same,like before
        like last time,set up,configure,redo,continue
        """
    ),
)
