"""Chinese names of persons, told by their looks."""

import re

from memrecall.extraction.rules.frames import words

_SURNAMES = (
    "王李张刘陈杨黄赵周吴徐孙马朱胡郭何高林罗郑梁谢宋唐许韩冯邓曹彭曾肖田董袁潘于蒋蔡余杜"
    "叶程苏魏吕丁任沈姚卢姜崔钟谭陆汪"
    "范金石廖贾夏韦付方白邹孟熊秦邱江尹薛闫段雷侯龙史陶黎贺顾毛郝龚邵万钱严覃武戴莫孔向汤"
    "温康施文牛樊葛邢安齐易乔伍庞颜倪庄"
    "聂章鲁岳翟殷詹申欧耿关兰焦俞左柳甘祝包宁尚符舒阮柯纪梅童凌毕单季裴霍涂成苗谷盛曲翁冉"
    "骆蓝路游辛靳管柴蒙鲍华喻祁蒲房"
    "滕屈饶解牟艾尤阳时穆农司卓古吉缪简车项连芦麦褚娄窦戚岑景党宫费卜冷晏席卫米柏宗瞿桂全"
    "佟应臧闵苟邬边卞姬师和仇栾隋商"
    "刁沙荣巫寇桑郎甄丛仲虞敖巩明佘池查麻苑迟邝"
)
_TITLES = (
    "教授|老师|医生|总|经理|主任|师傅|同学|姐|哥|叔|阿姨|博士|律师|院长|校长|工|导|老板"
    "|女士|先生|小姐"
)
_FULL = re.compile(
    f"[{_SURNAMES}][\u4e00-\u9fff]{{1,2}}|(?:欧阳|司马|上官|诸葛|司徒)[\u4e00-\u9fff]{{1,2}}"
)
_FAMILIAR = re.compile("[小老阿大][^的了是在有上]|[\u4e00-\u9fff]哥|[\u4e00-\u9fff]姐")
_TITLED = re.compile(f"[{_SURNAMES}][\u4e00-\u9fff]?(?:{_TITLES})")
_NEVER_IN_NAMES = re.compile("[我你他她的了在是这那不]")
_NO_NAMES = words(
    "小时 小说 小孩 小学 小区 小组 老板 老师 老家 老人 大家 大学 大概 大部 大约 小心 老是 "
    "老婆 老公 大哥 阿姨 小狗 小猫 任何 高中 高考 方案 时间"
    " 时候 明天 明年 安排 文件 文章 文档 成本 成员 成绩 应该 全部 全家 和你 同学 平时 "
    "平常 周末 周一 周二 周三 周四 周五 周六 周日 于是 关于 由于"
    " 程序 石头 金额 房子 房间 房东 路上 车子 车票 项目 项链 单位 单身 左右 向来 尤其 "
    "华为 简单 简历 连续 包括 易拉 成功 成都 万一 万能 白天 黄金"
    " 米饭 商品 商量 师傅 解决 解释 查看 查询 边上 司机 农村 古代 阳台 阳光 游戏 路由 "
    "蓝色 白色 黄色 金色 管理 谷歌 盛夏 季度 童年 包子 贺卡 龙虾 马上"
    " 高铁 高兴 何时 何况 余额 金融 江西 江苏 安徽 宁波 云南 常常 温度 温州 康复 文化 "
    "牛奶 安全 安装 关系 关键 兰州 左边 毕业 毕竟 梅雨 武汉 石家 曲线 车站 景区"
    " 全国 全职 全程 应用 应付 和平 明白 明确 明显 商店 商业 党员 池子 查到 迟到 麻烦 "
    "麻辣 师兄 师姐 时区 时常 卫生 席位 米兰 费用 费劲 宫殿 解放 屈服 司法 吉他 易怒"
)


def is_name(text: str) -> bool:
    """Whether a short text looks like the name of a person: 李明, 小王, 张教授."""
    if text.isascii():
        return text[:1].isupper() and text.replace(" ", "").isalpha()
    if text in _NO_NAMES or len(text) > 4 or _NEVER_IN_NAMES.search(text):
        return False
    if _TITLED.fullmatch(text):
        return True
    if _FULL.fullmatch(text) and len(text) >= 2:
        return _is_tagged(text)
    return bool(_FAMILIAR.fullmatch(text)) and _is_tagged(text)


def _is_tagged(text: str) -> bool:
    from rjieba import has_word, tag  # loading its dictionary takes a moment

    tags = [kind for _, kind in tag(text)]
    # The segmenter knows common words; what it does not know and has a surname is a name.
    return tags == ["nr"] or not has_word(text)


def is_no_name(text: str) -> bool:
    """Whether what stands where a name could is a word of another kind: 终于, 特别."""
    from rjieba import tag  # loading its dictionary takes a moment

    if len(text) == 2 and text[0] == text[1]:
        return False  # 朵朵, 乐乐
    kinds = [kind[:1] for _, kind in tag(text)]
    return not text.isascii() and len(kinds) == 1 and kinds[0] not in "naixzjl"


def begins_with_noun(text: str) -> bool:
    """Whether a clause opens with a thing or a person, as a clause with a subject does."""
    from rjieba import tag  # loading its dictionary takes a moment

    first = next(iter(tag(text[:12])), ("", ""))
    return first[1].startswith(("n", "r")) and not first[1].startswith("nt")


def says_more_than_when(text: str) -> bool:
    """Whether a text has words that are no time, number or measure: 周日下午 has none."""
    from rjieba import tag

    return any(kind[:1] not in "tmqfux" for _, kind in tag(text))


def is_bare_noun(text: str) -> bool:
    """Whether a clause only names somebody or something: 小温, 另一家店."""
    from rjieba import tag

    kinds = [kind for _, kind in tag(text)]
    told = text.endswith("了")  # 换公司了 tells something, whatever its words are tagged
    return (
        not told
        and len(text) <= 8
        and kinds[:1] != []
        and all(kind[0] in "nrmqbuj" for kind in kinds)
    )


def opens_with_name(text: str, name: str) -> bool:
    """Whether a clause begins with this name, as far as its words can be told."""
    from rjieba import tag

    if name.isascii() or _TITLED.fullmatch(name):
        return True
    return next(iter(tag(text)), ("", "")) == (name, "nr")


def is_place(text: str) -> bool:
    """Whether a word is the name of a place."""
    from rjieba import tag

    return [kind for _, kind in tag(text)] == ["ns"]
