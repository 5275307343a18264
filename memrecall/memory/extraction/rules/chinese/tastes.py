"""Frames of what somebody likes, avoids, plays, has and uses, in Chinese."""

from memrecall.memory.extraction.rules.chinese.table import NEG, P, T, frame

_PASSING = "(?!这|那|你|您|它|他|她|上你|一下|吃啥|什么|哪)"
LIKES = (
    frame(
        f"{NEG}(?:比起[^，]{{1,8}}?)?(?:更喜欢|更爱|偏好|偏爱|倾向于?|宁愿|比较喜欢)(?P<value>{_PASSING}[^，]{{1,30}})$",
        T,
        "prefers",
        "prefers",
    ),
    frame(
        f"{NEG}(?:最)?(?:喜欢|喜爱|热爱|钟爱|痴迷|迷上了?|迷恋|爱上了?|沉迷|中意|爱好|酷爱"
        f"|爱(?!了))(?P<value>{_PASSING}[^，]{{1,30}})$",
        T,
        "likes",
        "likes",
    ),
    frame(
        f"{NEG}对(?P<value>[^，]{{1,12}}?)(?:很|非常|特别|比较|挺|超|蛮)*(?:感兴趣|有兴趣"
        f"|上瘾|情有独钟|着迷)",
        T,
        "likes",
        "likes",
    ),
    frame(
        f"(?:坐|吃|喝|看|听|睡|穿|买|写|住|出门|旅行|旅游|早餐|上班"
        f"|开会)[^，不]{{0,5}}?(?:喜欢|爱|习惯)(?P<value>{_PASSING}[^，]{{1,16}})$",
        T,
        "likes",
    ),
    frame(
        "(?:[^，不没]{1,5}?)?(?:都只|只|主要|都)(?:喝|吃|看|听|穿|买|坐|选|读)(?P<value>(?!了|过|这|那|一|到|完"
        "|得|有|能|想)[^，]{1,14})$",
        T,
        "prefers",
    ),
    frame(
        "是(?P<value>[^，]{1,12}?的?(?:粉丝|球迷|忠实粉丝|铁粉|迷|爱好者|控|发烧友|吃货))",
        T,
        "likes",
        "likes",
    ),
    frame(
        f"(?:讨厌|受不了|厌恶|反感|最烦|烦(?!死|恼|躁|心)|恨"
        f"|不喜)(?P<value>{_PASSING}[^，]{{1,20}})$",
        T,
        "likes",
        "dislikes",
        negated=True,
    ),
    frame(
        "(?:害怕|恐惧|怕)(?P<value>(?:高|黑|冷|热|水|狗|猫|蛇|虫|鬼|打雷|坐飞机|飞|辣|疼|痛"
        "|老鼠|蟑螂|蜘蛛|见人|生人|孤独|死|打针|密集|封闭)[^，]{0,6})$",
        T,
        "fear",
        "fears",
    ),
    frame(
        "是(?:个|一个)?(?P<value>夜猫子|早起的人|社恐|社牛|内向的?人?|外向的?人?|吃货"
        "|完美主义者|路痴|[IE][NS][TF][JP])",
        T,
        "trait",
    ),
    frame("是?(?P<value>[IE][NS][TF][JP]|[ieIE]人)$", T, "trait"),
    frame("(?P<value>(?:性格)?(?:比较)?(?:内向|外向)|社恐|路痴)$", T, "trait"),
)
AVOIDED = (
    frame(
        "(?:已经|都|快)*[0-9一二两三四五六七八九十半几]+(?:多)?(?:年|个月)(?P<neg>没)有?(?:喝|吃|抽|碰)过?"
        "(?P<value>[^，了]{1,8})了?$",
        T,
        "avoids",
        "avoids",
    ),
    frame(
        "(?P<neg>不)用(?P<value>社交媒体|社交软件|微信|微博|抖音|智能手机|现金|信用卡)(?:了|的)?$",
        T,
        "avoids",
        "avoids",
    ),
    frame(
        "(?P<neg>不|再也不)(?:骑|开)(?P<value>摩托车?|电动车|车|自行车)了$", T, "avoids", "avoids"
    ),
    frame(
        "(?P<neg>)(?:喝|吃)[^，]{1,6}不(?:加|放|要)(?P<value>[^，]{1,6}?)(?:了|的)?$",
        T,
        "avoids",
        negated=True,
    ),
    frame(
        "(?:从来|从)?(?P<neg>没有?)(?:去|到|坐|吃|喝|学|用)过(?P<value>[^，]{1,10})$",
        "general",
        "experience",
    ),
    frame(
        "(?P<neg>)(?:吃|喝|看|听|闻|坐|穿|用|熬)不了(?P<value>[^，]{1,10})$",
        T,
        "avoids",
        "avoids",
        negated=True,
    ),
    frame(
        "(?P<neg>再也不|不再|从来不|从不|不能|不敢|不可以|不会|不太|不怎么|不爱|不|没法"
        "|忌)(?:能|敢|可以|太|怎么|爱)?(?:吃|喝|抽|碰|沾|吸|嗑)(?P<value>(?!这|那|了$|完|饭了"
        "|饱|惯|到|得|下|亏|早饭没)[^，]{1,14})$",
        T,
        "avoids",
        "avoids",
    ),
    frame("(?:忌口|忌)(?P<value>[^，的]{1,10})$", T, "avoids", "avoids", negated=True),
    frame(
        "(?:已经|刚|终于|成功)*(?:戒了|戒掉了?|戒)(?P<value>[^，]{1,8}?)了?(?:[^，]{0,6})$",
        T,
        "avoids",
        "avoids",
        ended=True,
    ),
)
HOBBIES = (
    frame(
        "(?P<neg>不)?会(?P<value>(?:游泳|开车|做饭|骑车|骑自行车|滑雪|跳舞|唱歌|下棋|打字|编程|画画)[^，]{0,4})$",
        T,
        "skill",
    ),
    frame(
        "(?P<value>(?:骑[^，]{1,4}|坐[^，]{1,4}|开车|走路|打车|搭[^，]{1,4})(?:去)?(?:上下班|上班|通勤|上学))$",
        "habit",
        "commute",
    ),
    frame(
        f"{NEG}(?:在[^，]{{1,8}}?)?(?:会弹|会拉|会吹|弹|拉|吹|练|打)(?P<value>(?:贝斯|吉他"
        f"|钢琴|小提琴|古筝|二胡|笛子|萨克斯|鼓|架子鼓|尤克里里|大提琴|琵琶|篮球|羽毛球|网球"
        f"|乒乓球|排球|高尔夫|太极|台球|游戏|麻将|书法|瑜伽|拳击)[^，]{{0,8}})",
        T,
        "hobby",
        "plays",
    ),
    frame(
        "(?:收集|收藏)(?P<value>(?!策略|夹|了|一下|价值|这|那)[^，]{2,10})$", T, "hobby", "collects"
    ),
    frame(
        "(?:迷上了|开始|爱上了)(?P<value>(?:跑步|健身|游泳|爬山|徒步|骑行|摄影|画画|写作|烘焙"
        "|钓鱼|瑜伽|冥想|滑雪|攀岩|露营|打太极|种花|下棋|练字|做饭)[^，]{0,6})",
        T,
        "hobby",
        "likes",
    ),
    frame(
        "支持(?P<value>[^，]{0,10}?(?:队|俱乐部|国安|申花|皇马|巴萨|曼联|利物浦|阿森纳|湖人|勇士))",
        T,
        "supports",
        "supports",
    ),
)
OWNED = (
    frame(
        "(?:开的是|开的|骑的是|开着|开)(?P<value>(?!心|会|始|车|发|店|学|通|放|完|玩笑|了|源"
        "|票)[^，]{2,12})$",
        "general",
        "owns",
        "owns",
    ),
    frame(
        f"{NEG}有(?P<value>一?(?:辆|套|台|部|架|把|间|栋|艘)[^，]{{1,14}})$",
        "general",
        "owns",
        "owns",
    ),
    frame("(?P<neg>没)有?(?P<value>车|房|房子|驾照|孩子|宠物)$", "general", "owns"),
    frame(
        "写(?P<value>(?:Python|Java|Go|Rust|C\\+\\+|C#|TypeScript|JavaScript|Kotlin|PHP|Swift|Ruby|SQL|前端|后端)"
        "[^，]{0,6})$",
        T,
        "uses",
        "uses",
    ),
    frame("穿(?P<value>\\d+码[^，]*)$", P, "size"),
    frame(
        "(?:工作|上班|家里|公司|平时|电脑|手机|数据库|后端|前端|编辑器|浏览器|输入法|框架)?(?:用的是|在用|一直用|常用|习惯用|惯用|平时用"
        "|一般用)(?P<value>(?!来|于|户|心|不|了|过|完|得|这|那|什么)[^，]{2,20})$",
        T,
        "uses",
        "uses",
    ),
    frame(
        "(?:家里|公司|工作|上班|平时|写代码|画图|办公|记笔记|剪辑|开发|编辑器"
        "|浏览器|数据库|后端|前端|手机|电脑)?(?:使用|用) "
        "?(?P<value>(?:(?!APP|PPT)[A-Z][\\w.+#-]*"
        "|(?!app)[a-z]{2,}[\\w.+#-]*|苹果|华为|小米|安卓|鸿蒙)[^，]{0,16})$",
        T,
        "uses",
        "uses",
    ),
)
TASTES = (*AVOIDED, *LIKES, *HOBBIES, *OWNED)
"""What lasts, the more telling first."""
