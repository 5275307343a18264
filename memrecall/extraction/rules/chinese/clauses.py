"""Chinese sentences as clauses, each with its subject and its predicate."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from memrecall.extraction.rules.chinese.kinship import KIN_WORD, PET_WORD
from memrecall.extraction.rules.chinese.names import is_name, is_no_name, opens_with_name

SubjectKind = Literal["self", "kin", "named", "thing", "it"]

_HAN = "\u4e00-\u9fff"
_SPLIT = re.compile(rf"[，,；;]+|(?<=[{_HAN}])\s+(?=[{_HAN}])|[—～~]{{1,3}}|\s-+\s")
_MARKERS = re.compile(
    "(?:(?:另外|此外|而且|但是|但|不过|可是|所以|因为|因此|其实|对了|顺便说一下|顺便一提"
    "|顺便|说起来|哦对|哦|噢|嗯+|啊|哎|唉"
    "|嗨|哈喽|你好|您好|大家好|hi|Hi|hello|Hello|那么|然后|还有|同时|话说|告诉你"
    "|跟你说一下|跟你说|和你说|我跟你说|我告诉你|总之|反正|主要是"
    "|毕竟|虽然|尽管|并且|以及|接着|结果|原来|说实话|老实说|事实上|实际上|更正一下|更正"
    "|纠正一下|补充一下|补充|报告一下"
    "|好消息|坏消息|是这样的|是的|对的|对|没错|不是|不对|好的|好|谢谢你?|感谢|哈哈+|嘿嘿"
    "|早上好|晚上好|下午好|早|各位|大家"
    "|忘了说|忘记说了|差点忘了|说明一下|提一下|提醒一下|我想说的?是?|我说一下"
    "|我觉得(?=我)|我发现(?=我)|应该说|准确地?说|简单来?说)[，,、。:：！!~\\s]*)+"
)
_TIME_LEAD = (
    "(?P<lead>(?:现在|目前|最近|近来|平时|平常|一般|通常|以前|之前|曾经|小时候|从小|当年"
    "|后来|周末|早上|晚上|中午|下午|上午|今年|明年"
    "|去年|前年|今天|明天|后天|昨天|前天|今晚|明晚|昨晚|上周|下周|这周|本周|上个月|下个月"
    "|这个月|每天|每周|每个月|每年|每晚|最后|后来|清明节?|端午节?|中秋节?|元旦|除夕|早饭|午饭|晚饭|早餐|午餐|晚餐"
    "|圣诞节?|七夕|情人节|年底|年初|月底"
    "|其实|一直|已经|刚刚|刚|暑假|寒假|春节|国庆|五一|过年|放假|下班后?|睡前|饭后"
    "|每[^我他她你，]{1,7}?"
    "|[0-9一二三四五六七八九十两零〇年月日号点半前后周星期礼拜天内末底初下上这个本]{2,14}?"
    ")[，,]?"
    "(?:的时候|时|起|开始|左右|之前|以前|之后|以后|前|后)?)*?"
)
_I = "(?:我们|咱们|咱|我|本人|俺|用户)"
_NOT_POSSESSED = f"(?!的|家的?(?:{PET_WORD})|(?:家|的)?(?:{KIN_WORD})(?!人))"
_SELF = re.compile(f"{_TIME_LEAD}{_I}(?:自己|本人|个人|这个人|这边)?{_NOT_POSSESSED}(?P<said>.+)")
_STARTS = (
    "(?=[0-9一二三四五六七八九十两在是有叫住喜爱讨对会要想打准计今明昨后下上这最刚已从每也"
    "都还很特非不没去来做当开养得患毕考结离怀搬吃用学读工换买现目平一就之以"
    "原曾过正将快马到回给让把被因为的超挺真病摔出参辞升当姓信属教跟和同约定改跳入转退移嫁升]|生[了孩下病于在]|$)"
)
_KIN = re.compile(
    f"{_TIME_LEAD}{_I}(?:家里?的?|的)?(?P<adjective>大|小|二|三|亲|前|最好的|现在的|新"
    f"|直属|部门|顶头)?"
    f"(?P<noun>{KIN_WORD}|{PET_WORD})(?P<name>[{_HAN}]{{2,3}}?|[A-Za-z]+(?: "
    f"[A-Z][a-z]+)?)??(?P<said>{_STARTS}.+)"
)
_KIN_ALONE = re.compile(
    f"{_TIME_LEAD}{_I}(?:家里?的?|的)?(?P<adjective>大|小|二|三|亲|前)?(?P<noun>{KIN_WORD})"
    f"(?P<name>)(?P<said>(?!的|们|娘|夫|说|和|跟|与|[是也都]说).+)"
)
# Who is close needs no 我: 女儿九岁了.
_CLOSE = (
    "儿子|女儿|老公|老婆|媳妇|丈夫|妻子|孩子|娃|爸妈|爸爸|妈妈|父亲|母亲|婆婆|公公|男朋友"
    "|女朋友|爷爷|奶奶|外婆|外公|室友|宝宝|妹妹|弟弟|姐姐|哥哥"
)
_CLOSE_KIN = re.compile(
    f"{_TIME_LEAD}(?P<adjective>大|小|二)?(?P<noun>{_CLOSE})(?!的)(?P<name>)(?P<said>{_STARTS}.+)"
)
_OWNED = re.compile(
    f"{_TIME_LEAD}{_I}(?:家里?的?|的)(?P<noun>[^是叫在为：:]{{1,14}}?)"
    "(?P<said>(?:[昨今明前后上下刚这本0-9一二三四五六七八九十][^是叫在]{0,6}?)?(?:一般"
    "|现在|目前|已经|都|也|就|突然|又)*(?:是|叫|为|在|用|：|:|改|定|设|跑|放|部署|取消"
    "|推迟|提前|延期|到期|过期|截止|记|存|需要|要求|依赖|有|坏|丢|超过|大概是?|不).*)"
)
# Things so much one's own that they need no 的: 我签证, 我们房子.
_THINGS = "房子|房租|车|车子|手机|电脑|护照|签证|身份证|驾照|保险|合同|会员|店里?|公司|笔记"
_OWNED_BARE = re.compile(_OWNED.pattern.replace("的?|的)", f"的?|的|(?={_THINGS}))", 1))
_SLOT = (
    "名字|姓名|英文名|全名|小名|网名|昵称|生日|出生日期|电话|手机号?|手机号码|新?号码"
    "|新电话|新地址|新邮箱|微信号?"
    "|邮箱|邮件地址|地址|住址|家庭住址|身高|体重|年龄|职业|工作|岗位"
    "|公司|单位|专业|学校|老家|籍贯|家乡|母语|国籍|民族|信仰|星座|血型|鞋码|尺码|衣服尺码"
    "|时区|爱好|兴趣|预算|目标|梦想|愿望|口味|饮食习惯"
    "|结婚纪念日|纪念日|预产期|用户名|账号|学号|工号|车牌号?"
)
_OWN_SLOT = re.compile(
    f"{_TIME_LEAD}{_I}?(?:今年|明年|这个月|现在|目前|家)?(?:的)?(?P<noun>(?:最(?:喜欢"
    f"|爱)的?[^是]{{1,8}}?|{_SLOT}))(?P<said>(?:现在|已经|目前)?(?:是|为|叫|：|:|在|改成"
    f"|改为|换成|不是).+)"
)
_THING = re.compile(
    "(?P<noun>[^我你他她，,。是？?]{2,18}?)(?P<said>(?:已经|现在|目前|统一|默认|都)*(?:是"
    "|为|用的是|使用|用|跑在|运行在|部署在|监听|设成|设置为|设为|改成"
    "|改为|改到|改在|定在|定于|安排在|推迟到|提前到|推迟|延期到|取消|放在|存在|位于"
    "|升级到|换成|叫|在|[0-9一二三四五六七八九十年月号日底周]{2,8}(?:到期|过期|截止)).*)"
)
_NAMED = re.compile(
    f"@?(?P<name>[{_HAN}]{{2,4}}?|[A-Z][a-z]+(?: [A-Z][a-z]+)?)(?P<said>{_STARTS}.+)"
)
_PRONOUN = re.compile(f"{_TIME_LEAD}(?P<word>他们|她们|他|她|它)(?!的|说|们)(?P<said>.+)")


@dataclass(frozen=True, slots=True)
class Clause:
    """Who or what a clause is about, and what it says of it."""

    kind: SubjectKind
    said: str
    lead: str = ""
    noun: str = ""
    name: str = ""
    own: bool = True
    elided: bool = False


def strip_markers(text: str) -> str:
    """The text without the words that only open it: 对了, 其实, 顺便说一下."""
    match = _MARKERS.match(text)
    return text[match.end() :] if match and match.end() < len(text) else text


def split_clauses(text: str) -> Iterator[str]:
    """The clauses of a sentence."""
    for piece in _SPLIT.split(text):
        bare = strip_markers(piece.strip(" 、:：…~～"))
        if bare:
            yield bare


def read_clause(text: str, people: Collection[str]) -> Clause | None:
    """The clause with its subject; None if it names none."""
    if match := _OWN_SLOT.fullmatch(text):
        return Clause("thing", match["said"], _lead(match), match["noun"])
    if match := (_KIN.fullmatch(text) or _KIN_ALONE.fullmatch(text) or _CLOSE_KIN.fullmatch(text)):
        noun, name = (match["adjective"] or "") + match["noun"], match["name"] or ""
        if name and is_no_name(name):
            return Clause("kin", name + match["said"], _lead(match), noun)
        return Clause("kin", match["said"], _lead(match), noun, name)
    if match := _OWNED_BARE.fullmatch(text):
        return Clause("thing", match["said"], _lead(match), match["noun"])
    if match := _SELF.fullmatch(text):
        return Clause("self", match["said"], _lead(match))
    if match := _PRONOUN.fullmatch(text):
        return Clause("it" if match["word"] == "它" else "named", match["said"], _lead(match))
    match = _NAMED.fullmatch(text)
    if match and (match["name"] in people or _is_named(text, match["name"])):
        return Clause("named", match["said"], name=match["name"])
    return None


_OBJECT_FIRST = re.compile(
    "(?P<what>[^我你他她，是]{1,6})(?:我|本人)(?P<did>(?:从来|一般|真的|都|是"
    "|也)*(?:吃不了|喝不了|不吃|不喝"
    "|不喜欢|不爱吃|吃不惯|受不了|特别喜欢|最喜欢|很喜欢|喜欢|爱吃|不能吃|不能喝))(?:的|了)?$"
)


# How a clause that does not begin with its subject reads when it does.
_TURNED = (
    (
        re.compile("(?P<what>[^我你他她，是]{1,6})我(?:已经|早就|终于|都)*戒掉?了"),
        r"我戒了\g<what>",
    ),
    (
        re.compile(
            "(?P<what>[^我你他她，是]{1,6})我一?(?P<did>[吃喝闻碰])了?(?:就|会)?(?P<then>拉肚子|过敏"
            "|起疹子|头疼|头痛|胃疼|不舒服|睡不着|心慌|恶心)"
        ),
        r"我\g<did>\g<what>就\g<then>",
    ),
    (
        re.compile(
            "(?:大家|朋友们?|同事们?|家里?人|同学们?)(?:一般|平时)?都?(?:叫|喊|称呼)我(?P<name>[^，的]{1,8})"
        ),
        r"我的昵称是\g<name>",
    ),
    (
        re.compile("(?P<than>(?:比起|相比)[^我你他她，]{1,8})我(?P<more>更.+)"),
        r"我\g<than>\g<more>",
    ),
    (
        re.compile(
            "(?P<what>[^我你他她，是]{1,8})(?P<who>我们?)(?P<did>(?:用的是|选了|选的是|选定了).+)"
        ),
        r"\g<who>\g<what>\g<did>",
    ),
)


def turn_round(text: str) -> str:
    """牛奶我喝不了 as 我喝不了牛奶."""
    if match := _OBJECT_FIRST.fullmatch(text):
        return f"我{match['did']}{match['what']}"
    for pattern, straight in _TURNED:
        if match := pattern.fullmatch(text):
            return match.expand(straight)
    return text


def _is_named(text: str, name: str) -> bool:
    return is_name(name) and opens_with_name(text, name)


def read_thing(text: str) -> Clause | None:
    """A clause about something that is nobody's: 数据库端口是5433."""
    match = _THING.fullmatch(text)
    return Clause("thing", match["said"], noun=match["noun"], own=False) if match else None


def _lead(match: re.Match[str]) -> str:
    # The repeated group holds its last repetition only.
    start = match.start("said")
    before = match.string[:start]
    owner = re.search(_I, before)
    return before[: owner.start()].strip("，, ") if owner else ""
