"""Frames of who somebody is: name, age, home, languages; and all that make a profile."""

from memrecall.extraction.rules.chinese.circumstances import FAMILY, HEALTH, PETS
from memrecall.extraction.rules.chinese.table import NEG, NUMBER, P, frame
from memrecall.extraction.rules.chinese.work import EXPERT, SCHOOL, WORK

NAMES = (
    frame(
        "(?:大名|全名|真名|中文名|名字)?(?:名叫|叫做|叫作|叫)(?P<value>(?!我|你|做|车|外卖|醒"
        "|上|来|救)[^，]{1,12})$",
        P,
        "name",
    ),
    frame("姓(?P<value>[^，]{1,2})$", P, "surname"),
)
AGES = (
    frame(
        rf"今年(?:已经|都|才|刚|快|马上)*(?P<value>{NUMBER}{{1,3}})(?:周)?岁?(?:半)?了?$", P, "age"
    ),
    frame(
        rf"(?:今年|已经|刚满|刚|马上|快|都|才|满)*(?:是)?(?P<value>{NUMBER}{{1,3}}(?:周)?岁(?:半)?"
        rf"|\d+个月大?)了?$",
        P,
        "age",
    ),
    frame(
        "(?:出生于|生于"
        "|是)(?P<value>[^，]*?[0-9一二三四五六七八九零〇]{2,4}年[^，]*?)(?:出生)?的?$",
        P,
        "birthday",
    ),
    frame(
        "(?P<value>[0-9零〇一二三四五六七八九十]{2,4}年[^，]{0,8}?)(?:出生|生)的?$", P, "birthday"
    ),
    frame("属(?P<value>[鼠牛虎兔龙蛇马羊猴鸡狗猪])的?$", P, "zodiac"),
    frame(
        "是(?P<value>(?:白羊|金牛|双子|巨蟹|狮子|处女|天秤|天蝎|射手|摩羯|水瓶|双鱼)座)的?",
        P,
        "zodiac",
    ),
)
HOMES = (
    frame(
        "在(?P<value>[^，]{2,12}?)住了(?:快|将近)?[一二两三四五六七八九十\\d]+(?:多)?(?:年|个月)",
        P,
        "home",
        "lives_in",
        "place",
    ),
    frame(
        "(?:和|跟)(?P<value>[^，]{1,10}?)(?:合租|同住|一起住|住一起|住在一起)(?:的)?$",
        P,
        "household",
    ),
    frame("是(?P<value>[^，]{1,4}族)(?:人|的)?$", P, "ethnicity"),
    frame("(?:坐标|现居|常居|常驻|base在?)(?P<value>[^，]{2,8})$", P, "home", "lives_in", "place"),
    frame("(?P<value>一个人住|独居|(?:跟|和)[^，]{1,8}(?:一起|同)?住)(?:了)?$", P, "household"),
    frame(
        "(?:租的房子?|房子|住的地方|租房)就?在(?P<value>[^，]{2,12})$",
        P,
        "home",
        "lives_in",
        "place",
    ),
    frame(
        f"来(?:到|了)?(?P<value>[^，]{{2,6}}?)(?:已经|都|快|有)*{NUMBER}+多?年了$",
        P,
        "home",
        "lives_in",
        "place",
    ),
    frame("老家(?P<value>[^，在是有的]{2,8}?)的?$", P, "origin", "from", "place"),
    frame(
        "预算(?:大概|大约|是)*(?P<value>[0-9一二两三四五六七八九十百千万][^，]{0,10})$", P, "budget"
    ),
    frame("信(?:奉|仰)?(?P<value>佛|佛教|基督教|天主教|伊斯兰教|道教|教)(?:的)?$", P, "religion"),
    frame(
        f"{NEG}(?:一个人|和[^，]{{1,8}}|跟[^，]{{1,8}})?(?:住在|定居在|定居于|定居|居住在"
        f"|家住|家在|租住在|租房在|住进了?|住到了?|住(?![^，]*\\d))(?P<value>(?!院|不|得|这么"
        f"|过)[^，]{{2,20}})$",
        P,
        "home",
        "lives_in",
        "place",
    ),
    frame(
        "(?:刚刚?|已经|终于|全家|一家人?|和[^，]{1,8}|从[^，]{1,8})*(?:搬到|搬去|搬来|搬回"
        "|搬进|移居到?|迁到|搬家到|搬到了)了?(?P<value>[^，]{2,16}?)(?:了|住了|去了|来了"
        "|生活了|居住)?$",
        P,
        "home",
        "lives_in",
        "place",
    ),
    frame(
        f"{NEG}(?:是)?(?:来自|老家在|老家是|籍贯是?|家乡是|家乡在"
        f"|祖籍是?)(?P<value>[^，]{{2,14}})$",
        P,
        "origin",
        "from",
        "place",
    ),
    frame(
        "(?:从小)?(?:出生在|出生于|生在)(?P<value>[^，]{2,12})$",
        P,
        "birthplace",
        "born_in",
        "place",
    ),
    frame(
        "(?:从小)?在(?P<value>[^，]{2,10}?)(?:长大|出生|土生土长)的?",
        P,
        "origin",
        "grew_up_in",
        "place",
    ),
    frame(
        "是(?:地道的?|土生土长的?|个|一个)?(?P<value>(?![ieIE]人|个|好|男|女|年轻|成年|老|主|负责|普通"
        "|外地|本地|中间|当事|同|坏|大|一般|穷|有钱|机器|那种|什么"
        "|怎样)[^，个的]{0,7}?[^，个的工商军农持纪始伙责选愿牌]人)$",
        P,
        "origin",
        "from",
        "place",
    ),
)
MEMBERSHIP = (
    frame(
        "是(?P<value>[^，]{2,12}?)的?(?:成员|会员|一员|队员|队长|会长|社长|志愿者)$",
        P,
        "member_of",
        "member_of",
        "organization",
    ),
)
LANGUAGES = (
    frame(
        "(?P<value>(?:英语|日语|法语|德语|韩语|粤语|普通话|俄语|西班牙语)(?:水平)?(?:很|还"
        "|比较|挺|不太)?"
        "(?:一般|不好|好|流利|还行|不错|差|不行|六级|四级|过了[^，]+))$",
        P,
        "language",
    ),
    frame(
        f"{NEG}(?:在家|平时|上班|在公司|在外面)?(?:会说|会讲|能说|会|说|讲)(?:一点|流利的?"
        f"|一口)?(?P<value>(?!议|计)(?:[^，]{{1,6}}?(?:语|话)"
        f"|[英中日法德韩俄]文)(?:[^，]{{0,8}})?)$",
        P,
        "language",
        "speaks",
        "language",
    ),
    frame(
        "(?:正在|在|开始|最近在|报班|自)?(?:学习|学)(?:了|着|起了?)?(?P<value>(?!会|到|校|生"
        "|过|完|不|习|了|的|历|期|位|费|长|姐|弟|妹|着|者|问|术|界|霸|科)[^，]{1,10})$",
        P,
        "learning",
        "learns",
        "field",
    ),
)
PROFILE = (
    *AGES,
    *HEALTH,
    *MEMBERSHIP,
    *NAMES,
    *FAMILY,
    *PETS,
    *EXPERT,
    *SCHOOL,
    *HOMES,
    *WORK,
    *LANGUAGES,
)
