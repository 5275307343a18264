"""What belongs to somebody and is told with 是, in Chinese; and settings of systems."""

import re
from dataclasses import replace

from memrecall.extraction.protocol import MemoryType
from memrecall.extraction.rules.chinese.clauses import Clause
from memrecall.extraction.rules.chinese.plans import (
    APPOINTMENT,
    CALLED_OFF,
    EVENTS,
    HABIT,
    SCHEDULED,
)
from memrecall.extraction.rules.chinese.table import frame
from memrecall.extraction.rules.dating import Moment, has_time
from memrecall.extraction.rules.frames import ANY, Frame, Told

_SLOTS = {
    "name": "名字 姓名 全名",
    "nickname": "小名 网名 昵称 英文名",
    "birthday": "生日 出生日期",
    "phone": "电话 手机 手机号 手机号码 号码",
    "wechat": "微信 微信号",
    "email": "邮箱 邮件地址",
    "address": "地址 住址 家庭住址",
    "height": "身高",
    "weight": "体重",
    "age": "年龄",
    "job": "职业 工作 岗位",
    "employer": "公司 单位",
    "major": "专业",
    "school": "学校",
    "origin": "老家 籍贯 家乡",
    "language": "母语",
    "nationality": "国籍",
    "ethnicity": "民族",
    "religion": "信仰",
    "zodiac": "星座",
    "blood_type": "血型",
    "shoe_size": "鞋码",
    "size": "尺码 衣服尺码",
    "time_zone": "时区",
    "hobby": "爱好 兴趣",
    "budget": "预算",
    "goal": "目标 梦想 愿望",
    "diet": "口味 饮食习惯",
    "anniversary": "结婚纪念日 纪念日",
    "due_date": "预产期",
    "username": "用户名 账号",
    "student_number": "学号",
    "staff_number": "工号",
    "licence_plate": "车牌 车牌号",
}
_NEW_SLOT = re.compile("^(?:新的?|现在的?)")
SLOT_OF = {noun: slot for slot, nouns in _SLOTS.items() for noun in nouns.split()}
_FAVOURITE = re.compile("最(?:喜欢|爱)的?(?P<what>.+)")
_IS = frame(
    "(?:现在|已经|目前)?(?P<neg>不)?(?:是|为|叫|：|:|改成了?|改为|换成了?|在|大概是?"
    "|有)(?P<value>.+)",
    "user_profile",
    tenses=ANY,
)
_SYSTEMS = re.compile(
    "数据库|服务器|接口|端口|仓库|分支|项目|后端|前端|集群|服务|密钥|密码|口令|令牌|配置"
    "|设置|版本|超时|连接池|队列|域名|网址|链接|命令|脚本|环境|变量|容器|镜像|流水线"
    "|部署|构建|缓存|表|测试环境|生产环境|预发|系统|路由器|网络|IP|ip|打印机|目录|路径"
    "|文件|默认|上限|框架|技术栈|代码|编辑器|电脑|wifi|WiFi|Wi-Fi|门禁|API|api|日志|备份"
    "|前缀|后缀|规范|格式"
)
_TECHNICAL = re.compile(r"[A-Za-z0-9][\w./:@-]*|阿里云|腾讯云|华为云")
_SET_UP = frame(
    "(?:已经|现在|目前|统一|默认|都)*(?:是|为|用的是|使用|用|跑在|运行在|部署在|监听|设成"
    "|设置为|设为|改成了?|改为|放在|存在|位于|升级到|换成|记在|存放在|写在|需要|要求|依赖"
    "|在|：|:|叫)(?P<value>.+)",
    "configuration",
    tenses=ANY,
)
_ENDS = re.compile("到期|过期|截止")
_NUMBERED = re.compile(r"\d[\d-]{4,}")
_APPOINTED = re.compile(f".*{APPOINTMENT}(?:时间)?")


def told_of_thing(clause: Clause, moment: Moment) -> Told | None:
    """What is told of something that belongs to the speaker or to nobody."""
    if clause.own and (told := _slot(clause)):
        return told
    appointed = _APPOINTED.fullmatch(clause.noun) or _ENDS.search(clause.said)
    if appointed and (told := _scheduled(clause, moment)):
        return told
    clause = replace(clause, noun=re.sub("(?:就|都|也|已经|现在)$", "", clause.noun))
    match = _SET_UP.pattern.match(clause.said)
    system = clause.own or _SYSTEMS.search(clause.noun + clause.said)
    if match and system and _TECHNICAL.search(match["value"]) and not _APPOINTED.match(clause.noun):
        return Told(replace(_SET_UP, field=clause.noun), match["value"], negated=False)
    if clause.own:
        return _other(clause, moment)
    return None


def _slot(clause: Clause) -> Told | None:
    favourite = _FAVOURITE.fullmatch(clause.noun)
    slot = SLOT_OF.get(_NEW_SLOT.sub("", clause.noun))
    match = _IS.pattern.match(clause.said)
    if match is None or not (favourite or slot):
        return None
    if slot == "phone" and not _NUMBERED.search(match["value"]):
        return None  # a phone, not its number
    kind: MemoryType = (
        "user_preference" if favourite else "plan" if slot == "goal" else "user_profile"
    )
    field = f"最喜欢的{favourite['what']}" if favourite else slot
    return Told(
        replace(_IS, memory_type=kind, field=field), match["value"].strip(), bool(match["neg"])
    )


def _scheduled(clause: Clause, moment: Moment) -> Told | None:
    for one in (*CALLED_OFF, *SCHEDULED):
        match = one.pattern.match(clause.said)
        whole = clause.lead + clause.said
        timed = not one.timed or has_time(whole, moment) or HABIT.search(whole)
        if match and timed:
            return Told(one, match["value"], one.ended, one.ended)
    return None


def _other(clause: Clause, moment: Moment) -> Told | None:
    """我的理发师是老周: any noun that is something; or what happened to it at a time."""
    if match := _NAMED_AS.pattern.match(clause.said):
        field = None if clause.noun in SLOT_OF else clause.noun
        return Told(replace(_NAMED_AS, field=field), match["value"], negated=False)
    happened: Frame = EVENTS[-1]
    match = happened.pattern.match(clause.said)
    if match and has_time(clause.lead + clause.said, moment):
        return Told(happened, match["value"], negated=False)
    return None


_NAMED_AS = frame(
    "(?:是|叫|换成了|换成(?=[^，]+了$))(?P<value>(?!什么|谁|哪|怎|不是|因为|我|你|这|那|真|很|最|为了|想|要|说"
    "|在)[^，]{1,16})$",
    "general",
    tenses=ANY,
)
