"""Frames of Chinese predicates; times and adverbs at their beginning were taken off before."""

import re

from memrecall.memory.extraction.facts import EntityType, MemoryType
from memrecall.memory.extraction.rules.chinese.kinship import KIN_WORD, PET_WORD
from memrecall.memory.extraction.rules.frames import ANY, NOW_OR_BEFORE, Frame, Tense

NEG = "(?P<neg>再也不|不再|从来不|从不|不太|不怎么|不大|并不|已经不|不能|不可以|不|没有|没)?"
_NUM = "[0-9一二两三四五六七八九十]"
_JOB = (
    "(?:[^，是的]{0,10}?(?:师|员|护士|医生|学生|研究生|大学生|实习生|博士生|博士|博士后|硕士生|硕士|本科生|高中生|初中生|作家|画家|专家|科学家|企业家|音乐家|艺术家"
    "|工人|司机|老板|经理|总监|会计|律师|教授|讲师|演员|模特|码农|程序猿|店长|主管|顾问|军人|警察|民警|创始人|合伙人|自由职业者?|公务员|全职妈妈|全职爸爸"
    "|家庭主妇|记者|编辑|翻译|导游|教练|歌手|舞者|摄影师|农民|保安|快递员|外卖员|主播|博主|志愿者|负责人|架构师|分析师|研究员|产品经理|老师|HR|CEO|CTO|程序员"
    "|运营|销售|客服|助理|秘书|法官|检察官|消防员|飞行员|空姐|空乘|厨师|面包师|设计师|工程师|研究者|组长|项目经理|上班族|打工人|退休教师|退休工人|个体户))"
)
_PASSING = "(?!这|那|你|您|它|他|她|上你|一下|吃啥|什么|哪)"
_ILLS = (
    "糖尿病|高血压|低血压|低血糖|哮喘|偏头痛|鼻炎|胃病|胃炎|心脏病|抑郁症|焦虑症|失眠|贫血|痛风|关节炎|甲亢|甲减|颈椎病|腰椎间盘突出|湿疹|荨麻疹|癫痫|近视"
    "|散光|色盲|高血脂|脂肪肝|肾结石|胆结石|多动症|强迫症|恐高症|幽闭恐惧症|乙肝|白癜风|[^，]{1,6}(?:症|病|炎)"
)


def frame(
    pattern: str,
    memory_type: MemoryType,
    field: str | None = None,
    relation: str | None = None,
    kind: EntityType = "thing",
    *,
    tenses: frozenset[Tense] = NOW_OR_BEFORE,
    **more: bool | str,
) -> Frame:
    """A frame of predicates that begin like this."""
    return Frame(
        re.compile(pattern), memory_type, field, relation, kind, tenses=tenses, **more  # type: ignore[arg-type]
    )


P: MemoryType = "user_profile"
R: MemoryType = "relationship"
T: MemoryType = "user_preference"

NAMES = (
    frame("(?:大名|全名|真名|中文名|名字)?(?:名叫|叫做|叫作|叫)(?P<value>(?!我|你|做|车|外卖|醒|上|来|救)[^，]{1,12})$", P, "name"),
    frame("姓(?P<value>[^，]{1,2})$", P, "surname"),
)
AGES = (
    frame(rf"今年(?:已经|都|才|刚|快|马上)*(?P<value>{_NUM}{{1,3}})(?:周)?岁?(?:半)?了?$", P, "age"),
    frame(rf"(?:今年|已经|刚满|刚|马上|快|都|才)*(?:是)?(?P<value>{_NUM}{{1,3}}(?:周)?岁(?:半)?|\d+个月大?)了?$", P, "age"),
    frame("(?:出生于|生于|是)(?P<value>[^，]*?[0-9一二三四五六七八九零〇]{2,4}年[^，]*?)(?:出生)?的?$", P, "birthday"),
    frame("(?P<value>[0-9零〇一二三四五六七八九十]{2,4}年[^，]{0,8}?)(?:出生|生)的?$", P, "birthday"),
    frame("属(?P<value>[鼠牛虎兔龙蛇马羊猴鸡狗猪])的?$", P, "zodiac"),
    frame("是(?P<value>(?:白羊|金牛|双子|巨蟹|狮子|处女|天秤|天蝎|射手|摩羯|水瓶|双鱼)座)的?", P, "zodiac"),
)
HEALTH = (
    frame(f"{NEG}对(?P<value>[^，]{{1,15}}?)(?:有点|有些|严重|重度|轻度|轻微|非常|特别|会)*过敏", P, "allergy", "allergic_to"),
    frame(f"{NEG}(?:有|是)?(?P<value>(?!对|皮肤|容易|很)[^，对]{{1,6}}?)(?:严重)?过敏(?:体质|症)?(?:者)?$", P, "allergy", "allergic_to"),
    frame(f"{NEG}(?:是|改|开始|坚持|一直|长期)*(?P<value>吃素|素食|素食主义者?|素食者|纯素(?:食)?者?|蛋奶素|吃全素|清真(?:饮食)?|吃清真|生酮(?:饮食)?|低碳饮食|控糖|轻断食|吃减脂餐|吃斋)(?:的|了)*$", P, "diet"),
    frame(f"{NEG}(?:有|是)?(?P<value>乳糖不耐受|乳糖不耐|麸质不耐受|麸质过敏)", P, "diet"),
    frame(f"{NEG}(?:患有|患了|患|得了|有|查出了?|确诊了?|被诊断(?:出|为)了?)(?P<value>(?:轻度|中度|重度|轻微|严重的?|先天性|慢性|\\d型|二型|一型|家族)*(?:{_ILLS}))", P, "health"),
    frame("(?:吃|喝|闻|碰|坐|晒)(?P<value>[^，]{1,8}?)(?:就|会|容易|总|老)+[^，]{0,4}(?:过敏|心慌|起疹子|头疼|头痛|拉肚子|不舒服|胃疼|恶心|吐|晕|失眠|痒|肿|胀气|睡不着|腹泻)", P, "health"),
    frame("是?(?P<value>(?:左眼|右眼|两只眼睛?)?近视.*?\\d+度?|是左撇子|左撇子|恐高|晕车|晕船|晕机|有恐高症|色盲|怕冷|怕热)", P, "health"),
    frame("(?:身高)(?P<value>[\\d一].+)", P, "height"),
    frame("(?:体重)(?P<value>\\d.+)", P, "weight"),
    frame("是(?P<value>(?:AB|A|B|O)型血)", P, "blood_type"),
    frame("(?:在吃|在服用|长期吃|服用|每天吃)(?P<value>[^，]*?(?:药|片|胶囊|素|二甲双胍|维生素|布洛芬|胰岛素|钙片)[^，]*)", P, "medication"),
)
FAMILY = (
    frame("是(?:一个|一名|个|一位)?(?P<value>(?:单亲|全职|新手|二胎|准|职场|两个?孩子的|三个?孩子的)?(?:妈妈|爸爸|奶爸|宝妈|宝爸|妈|爸|母亲|父亲))$", R, "family"),
    frame(f"{NEG}有(?P<value>(?:{_NUM}|几|一对)?(?:个|位|名|对)?(?:[^，]{{0,4}}?)(?:{KIN_WORD}|男孩|女孩|兄弟姐妹)(?:[^，]{{0,12}})?)$", R, "family"),
    frame("(?:跟|和|与)(?P<value>[^，]{1,10}?)(?:结婚|领证|登记结婚|成家)", R, "marital_status", "married_to", "person"),
    frame("(?:嫁给|娶)了?(?P<value>[^，]{1,10})", R, "marital_status", "married_to", "person"),
    frame(f"{NEG}(?:是|刚|还)*(?P<value>已婚|未婚|单身|离异|离婚|结婚|订婚|丧偶|领证)(?:了|的|\\S{{0,3}}年了?|人士|状态)*$", R, "marital_status"),
    frame("(?:跟|和|与)(?P<value>[^，]{1,10}?)(?:分手|分开|离婚)了?", R, "partner", ended=True),
    frame("(?:跟|和|与)(?P<value>[^，]{1,10}?)(?:在一起|谈恋爱|在谈|订婚)", R, "partner", "partner_of", "person"),
    frame("(?P<value>(?:怀孕|怀了)[^，]*|(?:当|做|要当|要做)(?:爸爸?|妈妈?|爷爷|奶奶|外公|外婆)了?|生了[^，]{1,8}|是独生(?:子女?|女)|是独生子)", R, "family"),
)
PETS = (
    frame(f"{NEG}(?:养|有|领养|收养|买|捡)(?:了|过|着)?(?P<value>(?:{_NUM}|几)?(?:只|条|匹|个|头|缸)?(?:[^，]{{0,6}}?)(?:{PET_WORD}|鱼|鸟|马|多肉|花)(?:[^，]{{0,10}})?)$", R, "pet", "owns", "animal"),
)
SCHOOL = (
    frame("在(?P<value>[^，]{2,16}?)(?:上大学|读大学|念大学|读书|上学|念书|留学|攻读|就读|主修|进修|学习|读|念|(?<![大中小同上科文数化医哲])学(?!院|校|期|费|生|位|历))(?P<subject>[^，]*)$", P, "school", "studies_at", "organization"),
    frame("被(?P<value>[^，]{2,16}?)录取", P, "school", "studies_at", "organization"),
    frame("(?:就读于|就读|毕业于|考上了?|考入了?)(?P<value>[^，]{2,16}?)(?:毕业的?)?$", P, "school", "studies_at", "organization"),
    frame("(?:从|是)?(?P<value>[^，]{2,14}?(?:大学|学院|中学|高中|学校|北大|清华|复旦|交大))毕业(?:的|了)?", P, "education", "graduated_from", "organization"),
    frame("(?:读|上|在读|是|念)(?P<value>(?:大[一二三四五]|研[一二三]|博[一二三四]|高[一二三]|初[一二三]|[一二三四五六]年级|幼儿园|小学|初中|高中|本科|硕士|博士|研究生|MBA)[^，]{0,8})$", P, "school"),
    frame("(?:(?:本科|硕士|博士|大学|研究生|专科)(?:期间)?)?(?:学的是|学的|主修|攻读|专业学的是)(?P<value>(?!那|这)[^，]{2,12}?)(?:专业|的)?$", P, "major", "studies", "field"),
    frame("(?:学|读)(?P<value>(?!那|这|会|到|完|过)[^，]{2,10}?)(?:专业|专业的|的)$", P, "major", "studies", "field"),
)
HOMES = (
    frame(f"{NEG}(?:一个人|和[^，]{{1,8}}|跟[^，]{{1,8}})?(?:住在|定居在|定居于|定居|居住在|家住|家在|租住在|租房在|住进了?|住到了?|住)(?P<value>(?!院|不|得|这么|过)[^，]{{2,20}})$", P, "home", "lives_in", "place"),
    frame("(?:刚刚?|已经|终于|全家|一家人?|和[^，]{1,8}|从[^，]{1,8})*(?:搬到|搬去|搬来|搬回|搬进|移居到?|迁到|搬家到|搬到了)了?(?P<value>[^，]{2,16}?)(?:了|住了|去了|来了|生活了|居住)?$", P, "home", "lives_in", "place"),
    frame(f"{NEG}(?:是)?(?:来自|老家在|老家是|籍贯是?|家乡是|家乡在|祖籍是?)(?P<value>[^，]{{2,14}})$", P, "origin", "from", "place"),
    frame("(?:从小)?(?:出生在|出生于|生在)(?P<value>[^，]{2,12})$", P, "birthplace", "born_in", "place"),
    frame("(?:从小)?在(?P<value>[^，]{2,10}?)(?:长大|出生|土生土长)的?", P, "origin", "grew_up_in", "place"),
    frame("是(?:地道的?|土生土长的?|个|一个)?(?P<value>(?!个|好|男|女|年轻|成年|老|主|负责|普通|外地|本地|中间|当事|同|坏|大|一般|穷|有钱|机器|那种|什么|怎样)[^，个的]{0,7}?[^，个的工商军农持纪始伙责选愿牌]人)$", P, "origin", "from", "place"),
)
WORK = (
    frame("在(?P<value>[^，]{2,20}?)(?:工作|上班|任职|就职|实习|打工|供职|做事)(?:[^，]{0,10})?$", P, "employer", "works_at", "organization"),
    frame("(?P<neg>不)在(?P<value>[^，]{2,12}?)(?:上班|工作|干|待)?了$", P, "employer", "works_at", "organization"),
    frame("从(?P<value>[^，]{2,12}?)(?:离职|辞职|退休|跳槽|离开)了?(?:[^，]{0,4})$", "event", "employer", "works_at", "organization", ended=True),
    frame(f"在(?P<value>[^，在]{{2,16}}?)(?:当|做|担任)(?P<role>{_JOB}|外贸|生意|电商|金融|教育|物流|销售|运营|餐饮|自媒体|保险|前端|后端|开发|设计|测试|产品|研发|算法|数据|财务|人事|行政|市场)[^，]{{0,6}}$", P, "employer", "works_at", "organization"),
    frame("(?:入职了?|跳槽到了?|跳槽去了?|加入了?|去了?)(?P<value>[^，]{2,12}?)(?:工作|上班|任职|实习)了?$", P, "employer", "works_at", "organization"),
    frame("(?:入职|跳槽到|跳槽去)了?(?P<value>[^，]{2,12}?)了?$", P, "employer", "works_at", "organization"),
    frame(f"{NEG}是(?:一名|一个|一位|一家[^，]{{1,10}}的|个|名|位|做)?(?P<value>{_JOB})(?:的|了)?$", P, "job", "works_as", "field"),
    frame(f"(?:当|做|担任|转行做|改行做|成为)了?(?:一名|一个|一位|个|名)?(?P<value>{_JOB})(?:[^，]{{0,6}})$", P, "job", "works_as", "field"),
    frame("(?:是)?(?:做|从事|负责|搞|干)(?P<value>(?!什么|饭|菜|梦|完|不|好|到|得|了|个|这|那|事)[^，]{2,12}?)(?:工作|行业|这行|方面的?工作|的)$", P, "job", "works_in", "field"),
    frame("(?:是)?(?:做|从事|搞)(?P<value>(?:前端|后端|销售|开发|设计|运营|产品|测试|算法|金融|教育|外贸|电商|物流|财务|人事|行政|市场|自媒体|餐饮|跨境电商|医药|房地产|软件开发|数据分析|新媒体|游戏开发|嵌入式)[^，]{0,4})$", P, "job", "works_in", "field"),
    frame("(?P<value>(?:刚刚?|已经|前段时间)?(?:退休|失业|被裁|被裁员|离职|辞职|辞了?职|休产假|待业|升职|被提拔为?[^，]*|升为?[^，]{2,8}|转正)(?:[^，]{0,8})?)了$", "event", "job"),
    frame("(?P<value>自由职业|远程办公|居家办公|在家办公|上夜班|倒班|三班倒|弹性工作|双休|单休|996)", P, "work_style"),
    frame("在(?P<value>[^，]{2,16}?)(?:教)(?P<subject>[^，]{1,6})$", P, "employer", "works_at", "organization"),
    frame("(?:是)?教(?P<value>(?!我|你|他|会|育|练)[^，]{1,8}?)(?:的)?$", P, "job"),
    frame("(?:在[^，]{2,8})?(?:开了?|经营)(?:一)?(?:家|间|个)(?P<value>[^，]{2,12}(?:店|馆|公司|工作室|餐厅|厂|民宿|诊所|咖啡厅|书店|铺子|网店))", P, "job", "owns", "organization"),
)
EXPERT = (
    frame("在(?P<value>[^，]{2,14}?)(?:领域|方面|方向|界|行业)(?:里|中)?(?:是|有|都|也)?(?:非常|很|十分|特别|相当|极其|颇|比较)?(?:有名|著名|知名|厉害|有造诣|造诣|专业|权威|资深|出色|有影响力|有建树|深耕|研究|有经验|牛|强|突出|杰出|专家|$)", "general", "expertise", "expert_in", "field"),
    frame("(?:擅长|精通|研究方向是|研究的?是?|专攻|主攻)(?P<value>(?!了|一下|过|出)[^，]{2,14}?)(?:的|领域|方向)?$", P, "expertise", "expert_in", "field"),
    frame("是(?P<value>[^，]{2,14}?)(?:领域|方面|方向)?的?专家$", P, "expertise", "expert_in", "field"),
)
MEMBERSHIP = (
    frame("是(?P<value>[^，]{2,12}?)的?(?:成员|会员|一员|队员|队长|会长|社长|志愿者)$", P, "member_of", "member_of", "organization"),
)
LANGUAGES = (
    frame(rf"今年(?:已经|都|才|刚|快|马上)*(?P<value>{_NUM}{{1,3}})(?:周)?岁?(?:半)?了?$", P, "age"),
    frame(f"{NEG}(?:在家|平时)?(?:会说|会讲|能说|会|说|讲)(?:一点|流利的?|一口)?(?P<value>[^，]{{1,10}}?(?:语|文|话)(?:[^，]{{0,8}})?)$", P, "language", "speaks", "language"),
    frame("(?:正在|在|开始|最近在|报班|自)?(?:学习|学)(?:了|着|起了?)?(?P<value>(?!会|到|校|生|过|完|不|习|了|的)[^，]{1,10})$", P, "learning", "learns", "field"),
)
LIKES = (
    frame(f"{NEG}(?:更喜欢|更爱|偏好|偏爱|倾向于?|宁愿|比较喜欢)(?P<value>{_PASSING}[^，]{{1,30}})$", T, "prefers", "prefers"),
    frame(f"{NEG}(?:最)?(?:喜欢|喜爱|热爱|钟爱|痴迷|迷上了?|迷恋|爱上了?|沉迷|中意|爱好|酷爱|爱)(?P<value>{_PASSING}[^，]{{1,30}})$", T, "likes", "likes"),
    frame(f"{NEG}对(?P<value>[^，]{{1,12}}?)(?:很|非常|特别|比较|挺|超|蛮)*(?:感兴趣|有兴趣|上瘾|情有独钟|着迷)", T, "likes", "likes"),
    frame(f"(?:坐|吃|喝|看|听|睡|穿|买|写|住|出门|旅行|旅游|早餐|上班|开会)[^，不]{{0,5}}?(?:喜欢|爱|习惯)(?P<value>{_PASSING}[^，]{{1,16}})$", T, "likes"),
    frame(f"是(?P<value>[^，]{{1,12}}?的?(?:粉丝|球迷|忠实粉丝|铁粉|迷|爱好者|控|发烧友|吃货))", T, "likes", "likes"),
    frame(f"(?:讨厌|受不了|厌恶|反感|最烦|烦(?!死|恼|躁|心)|恨|不喜)(?P<value>{_PASSING}[^，]{{1,20}})$", T, "likes", "dislikes", negated=True),
    frame("(?:害怕|恐惧|怕)(?P<value>(?:高|黑|冷|热|水|狗|猫|蛇|虫|鬼|打雷|坐飞机|飞|辣|疼|痛|老鼠|蟑螂|蜘蛛|见人|生人|孤独|死|打针|密集|封闭)[^，]{0,6})$", T, "fear", "fears"),
    frame("是(?:个|一个)?(?P<value>夜猫子|早起的人|社恐|社牛|内向的?人?|外向的?人?|吃货|完美主义者|路痴|[IE][NS][TF][JP])", T, "trait"),
    frame("(?P<value>(?:性格)?(?:比较)?(?:内向|外向)|社恐|路痴)$", T, "trait"),
)
AVOIDED = (
    frame("(?P<neg>)(?:吃|喝|看|听|闻|坐|穿|用|熬)不了(?P<value>[^，]{1,10})$", T, "avoids", "avoids", negated=True),
    frame("(?P<neg>再也不|不再|从来不|从不|不能|不敢|不可以|不会|不太|不怎么|不爱|不|没法|忌)(?:能|敢|可以|太|怎么|爱)?(?:吃|喝|抽|碰|沾|吸|嗑)(?P<value>(?!这|那|了$|完|饭了|饱|惯|到|得|下|亏|早饭没)[^，]{1,14})$", T, "avoids", "avoids"),
    frame("(?:忌口|忌)(?P<value>[^，的]{1,10})$", T, "avoids", "avoids", negated=True),
    frame("(?:已经|刚|终于|成功)*(?:戒了|戒掉了?|戒)(?P<value>[^，]{1,8}?)了?(?:[^，]{0,6})$", T, "avoids", "avoids", ended=True),
)
HOBBIES = (
    frame(f"{NEG}(?:在[^，]{{1,8}}?)?(?:会弹|会拉|会吹|弹|拉|吹|练|打)(?P<value>(?:贝斯|吉他|钢琴|小提琴|古筝|二胡|笛子|萨克斯|鼓|架子鼓|尤克里里|大提琴|琵琶|篮球|羽毛球|网球|乒乓球|排球|高尔夫|太极|台球|游戏|麻将|书法|瑜伽|拳击)[^，]{{0,8}})", T, "hobby", "plays"),
    frame("(?:收集|收藏)(?P<value>(?!策略|夹|了|一下)[^，]{2,10})$", T, "hobby", "collects"),
    frame("(?:迷上了|开始|爱上了)(?P<value>(?:跑步|健身|游泳|爬山|徒步|骑行|摄影|画画|写作|烘焙|钓鱼|瑜伽|冥想|滑雪|攀岩|露营|打太极|种花|下棋|练字|做饭)[^，]{0,6})", T, "hobby", "likes"),
    frame("支持(?P<value>[^，]{2,10}?(?:队|俱乐部|国安|申花|皇马|巴萨|曼联|利物浦|阿森纳|湖人|勇士))", T, "supports", "supports"),
)
OWNED = (
    frame("(?:开的是|开的|骑的是|开着|开)(?P<value>(?!心|会|始|车|发|店|学|通|放|完|玩笑|了|源|票)[^，]{2,12})$", "general", "owns", "owns"),
    frame(f"{NEG}有(?P<value>一?(?:辆|套|台|部|架|把|间|栋|艘)[^，]{{1,14}})$", "general", "owns", "owns"),
    frame("穿(?P<value>\\d+码[^，]*)$", P, "size"),
    frame("(?:工作|上班|家里|公司|平时|电脑|手机)?(?:用的是|在用|一直用|常用|习惯用|惯用|平时用|一般用)(?P<value>(?!来|于|户|心|不|了|过|完|得|这|那|什么)[^，]{2,20})$", T, "uses", "uses"),
    frame("(?:家里|公司|工作|上班|平时)?(?:使用|用) ?(?P<value>(?:[A-Z][\\w.+#-]*|[a-z]{2,}[\\w.+#-]*|苹果|华为|小米|安卓|鸿蒙)[^，]{0,16})$", T, "uses", "uses"),
)
DECIDED = (
    frame("(?:决定|最后决定|已经决定|商量好|说好|约好|约定|定下来|敲定|确定|一致同意|拍板)(?:了|要)?(?P<value>[^，]{2,30})$", "decision", tenses=ANY),
    frame("(?:就|最后|最终|还是)*(?:选了?|选择|选定|采用|改用|换成|定了|用)(?P<value>(?!一下|哪|什么|不|了吗)[^，]{2,20}?)(?:吧|了|方案|好了)$", "decision", tenses=ANY),
    frame("(?:从[^，]{1,10})?(?:换成|改用|切换到|迁移到)了?(?P<value>[^，]{2,16})$", "decision", tenses=ANY),
)
PROFILE = (*AGES, *HEALTH, *MEMBERSHIP, *NAMES, *FAMILY, *PETS, *EXPERT, *SCHOOL, *HOMES, *WORK, *LANGUAGES)
TASTES = (*AVOIDED, *LIKES, *HOBBIES, *OWNED)
"""What lasts, the more telling first."""

