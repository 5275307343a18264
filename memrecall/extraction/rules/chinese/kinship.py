"""People and animals that belong to somebody, in Chinese: 我妹妹, 我家的猫."""

from memrecall.extraction.rules.frames import words

_RELATIONS = {
    "married_to": "老公 老婆 丈夫 妻子 太太 先生 爱人 媳妇",
    "engaged_to": "未婚夫 未婚妻",
    "partner_of": "男朋友 女朋友 男友 女友 对象 伴侣",
    "child_of": "爸爸 妈妈 爸 妈 父亲 母亲 老爸 老妈 爸妈 父母 爹 娘 家人",
    "parent_of": "儿子 女儿 孩子 小孩 宝宝 娃 闺女 大儿子 小儿子 大女儿 小女儿 老大 老二 双胞胎",
    "sibling_of": "哥哥 姐姐 弟弟 妹妹 哥 姐 弟 妹 大哥 二哥 大姐 二姐 双胞胎妹妹 双胞胎哥哥",
    "grandchild_of": "爷爷 奶奶 外公 外婆 姥姥 姥爷",
    "grandparent_of": "孙子 孙女 外孙 外孙女",
    "relative_of": "公公 婆婆 岳父 岳母 叔叔 阿姨 舅舅 舅妈 姑姑 姑妈 姨妈 表哥 表姐 表弟 表妹 堂哥"
    " 堂姐 堂弟 堂妹 侄子 侄女 外甥 外甥女 嫂子 姐夫 妹夫 弟媳",
    "friend_of": "朋友 好朋友 好友 闺蜜 哥们 哥们儿 发小 前男友 前女友 网友",
    "colleague_of": "同事 队友 搭档 合伙人",
    "managed_by": "老板 领导 上司 经理 主管 组长",
    "advised_by": "导师 指导老师 博导 硕导 师父",
    "taught_by": "老师 班主任 教练 教授",
    "classmate_of": "同学 同桌 学长 学姐 学弟 学妹",
    "lives_with": "室友 舍友",
    "neighbour_of": "邻居",
    "treated_by": "医生 牙医 主治医生",
    "served_by": "保姆 月嫂 家教 房东 律师 理财顾问",
    "teaches": "学生 徒弟",
}
_PETS = """
狗狗 小狗 猫咪 小猫 狗 猫 兔子 仓鼠 鹦鹉 乌龟 金鱼 宠物 柯基 金毛 哈士奇 泰迪 布偶 橘猫
英短 美短 暹罗 拉布拉多 边牧 柴犬 豚鼠 龙猫 蜥蜴 鸽子 比熊 博美 加菲 鹦哥 毛孩子 二哈 猫猫
"""

RELATION_OF = {word: name for name, words in _RELATIONS.items() for word in words.split()}
"""What somebody's sister, boss or teacher is to him, as a relation that begins with him."""

ONLY_ONE = words(
    """
    老公 老婆 丈夫 妻子 太太 未婚夫 未婚妻 男朋友 女朋友 男友 女友 对象 老板 领导 上司 导师 班主任
    牙医 主治医生 房东 保姆 家教
    """
)
"""Of whom one has one at a time: a new landlord takes the place of the old."""

PETS = frozenset(_PETS.split())
KIN_WORD = "|".join(sorted(RELATION_OF, key=len, reverse=True))
PET_WORD = "|".join(sorted(PETS, key=len, reverse=True))
