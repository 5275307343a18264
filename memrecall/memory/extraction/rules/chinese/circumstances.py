"""Frames of whom somebody lives with, and how he is: family, animals, health."""

from memrecall.memory.extraction.rules.chinese.kinship import KIN_WORD, PET_WORD
from memrecall.memory.extraction.rules.chinese.table import NEG, NUMBER, P, R, frame

_ILLS = (
    "糖尿病|高血压|低血压|低血糖|哮喘|偏头痛|鼻炎|胃病|胃炎|心脏病|抑郁症|焦虑症|失眠"
    "|贫血|痛风|关节炎|甲亢|甲减|颈椎病|腰椎间盘突出|湿疹|荨麻疹|癫痫|近视"
    "|散光|色盲|高血脂|脂肪肝|肾结石|胆结石|多动症|强迫症|恐高症|幽闭恐惧症|乙肝|白癜风"
    "|[^，]{1,6}(?:症|病|炎)"
)
HEALTH = (
    frame(
        f"{NEG}对(?P<value>[^，]{{1,15}}?)(?:有点|有些|严重|重度|轻度|轻微|非常|特别|会)*过敏",
        P,
        "allergy",
        "allergic_to",
    ),
    frame(
        f"{NEG}(?:有|是)?(?P<value>(?!对|皮肤|容易|很)[^，对]{{1,6}}?)(?:严重)?过敏(?:体质"
        f"|症)?(?:者)?$",
        P,
        "allergy",
        "allergic_to",
    ),
    frame(
        f"{NEG}(?:是|改|开始|坚持|一直|长期)*(?P<value>吃素|素食|素食主义者?|素食者"
        f"|纯素(?:食)?者?|蛋奶素|吃全素|清真(?:饮食)?|吃清真|生酮(?:饮食)?|低碳饮食|控糖"
        f"|轻断食|吃减脂餐|吃斋)(?:的|了)*$",
        P,
        "diet",
    ),
    frame(f"{NEG}(?:有|是)?(?P<value>乳糖不耐受|乳糖不耐|麸质不耐受|麸质过敏)", P, "diet"),
    frame(
        f"{NEG}(?:患有|患了|患|得了|有|查出了?|确诊了?|被诊断(?:出|为)了?)(?P<value>(?:轻度"
        f"|中度|重度|轻微|严重的?|先天性|慢性|\\d型|二型|一型|家族)*(?:{_ILLS}))",
        P,
        "health",
    ),
    frame(
        "(?:吃|喝|闻|碰|坐|晒)(?P<value>[^，]{1,8}?)(?:就|会|容易|总|老)+[^，]{0,4}(?:过敏"
        "|心慌|起疹子|头疼|头痛|拉肚子|不舒服|胃疼|恶心|吐|晕|失眠|痒|肿|胀气|睡不着|腹泻)",
        P,
        "health",
    ),
    frame(
        "是?(?P<value>(?:左眼|右眼|两只眼睛?)?近视.*?\\d+度?|是左撇子|左撇子|恐高|晕车|晕船"
        "|晕机|有恐高症|色盲|怕冷|怕热)",
        P,
        "health",
    ),
    frame("(?:身高)(?P<value>[\\d一].+)", P, "height"),
    frame("(?:体重)(?P<value>\\d.+)", P, "weight"),
    frame("是(?P<value>(?:AB|A|B|O)型血)", P, "blood_type"),
    frame(
        "(?:在吃|在服用|长期吃|服用|每天吃)(?P<value>[^，]*?(?:药|片|胶囊|素|二甲双胍|维生素"
        "|布洛芬|胰岛素|钙片)[^，]*)",
        P,
        "medication",
    ),
)
FAMILY = (
    frame(
        "是(?:一个|一名|个|一位)?(?P<value>(?:单亲|全职|新手|二胎|准|职场|两个?孩子的"
        "|三个?孩子的)?(?:妈妈|爸爸|奶爸|宝妈|宝爸|妈|爸|母亲|父亲))$",
        R,
        "family",
    ),
    frame(
        f"{NEG}有(?P<value>(?:{NUMBER}|几|一对)?(?:个|位|名|对)?(?:[^，]{{0,4}}?)(?:{KIN_WORD}"
        f"|男孩|女孩|兄弟姐妹)(?:[^，]{{0,12}})?)$",
        R,
        "family",
    ),
    frame(
        "(?:跟|和|与)(?P<value>[^，]{1,10}?)(?:结婚|领证|登记结婚|成家)",
        R,
        "marital_status",
        "married_to",
        "person",
    ),
    frame("(?:嫁给|娶)了?(?P<value>[^，]{1,10})", R, "marital_status", "married_to", "person"),
    frame(
        f"{NEG}(?:是|刚|还)*(?P<value>已婚|未婚|单身|离异|离婚|结婚|订婚|丧偶|领证)(?:了|的"
        f"|\\S{{0,3}}年了?|人士|状态)*$",
        R,
        "marital_status",
    ),
    frame("(?:跟|和|与)(?P<value>[^，]{1,10}?)(?:分手|分开|离婚)了?", R, "partner", ended=True),
    frame(
        "(?:跟|和|与)(?P<value>[^，]{1,10}?)(?:在一起|谈恋爱|在谈|订婚)",
        R,
        "partner",
        "partner_of",
        "person",
    ),
    frame(
        "(?P<value>(?:怀孕|怀了)[^，]*|(?:当|做|要当|要做)(?:爸爸?|妈妈?|爷爷|奶奶|外公"
        "|外婆)了?|生了[^，]{1,8}|是独生(?:子女?|女)|是独生子)",
        R,
        "family",
    ),
)
PETS = (
    frame(
        "(?:养|养了|养着)(?P<value>[^，]{0,6}?(?:鱼|鸟|马|鸡|鸭|蚕|多肉|花)[^，]{0,6})$",
        R,
        "pet",
        "owns",
        "animal",
    ),
    frame(
        f"{NEG}(?:养|有|领养|收养|买|捡)(?:了|过|着)?(?P<value>(?:{NUMBER}|几)?(?:只|条|匹|个"
        f"|头|缸)?(?:[^，]{{0,6}}?)(?:{PET_WORD})(?:[^，]{{0,10}})?)$",
        R,
        "pet",
        "owns",
        "animal",
    ),
)
