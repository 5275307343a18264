"""Changes of work in Chinese: whoever changed jobs and 现在在字节跳动 works there."""

import re

_NEW_JOB = re.compile(
    "换(?:了|过)?(?:一?[份个家])?(?:新的?)?(?:工作|公司|单位)|跳槽|入职|离职|辞职|新工作|新公司"
    "|换了东家"
)
_HERE = "家|这|那|路上|外|开会|忙|找|看|想|等|准备|休息|上海|北京|哪"
_AT = re.compile(
    f"(?P<open>^|[，,])(?P<lead>我?(?:现在|目前|如今|已经|新公司))在(?P<firm>(?!{_HERE})"
    "[^，,在了]{2,12})(?=$|[，,。])"
)
_WORKS = re.compile("工作|上班|任职|就职|实习|做|当|干|担任|负责|带")
# Of these everybody knows that they are companies: 去了小米 is no outing.
_FIRMS = (
    "腾讯|阿里巴巴|阿里|百度|字节跳动|字节|美团|京东|华为|小米|网易|拼多多|滴滴|快手|哔哩哔哩|B站"
    "|携程|小红书|蚂蚁集团|蚂蚁|比亚迪|蔚来|理想汽车|小鹏|宁德时代|大疆|联想|中兴|谷歌|微软|亚马逊"
    "|苹果公司|特斯拉|英伟达|英特尔|西门子|博世|宝洁|普华永道|德勤|毕马威|安永|麦肯锡"
    "|[^，,了去]{2,10}(?:集团|银行|证券|事务所|研究院|律所)"
)
_WENT = re.compile(
    f"(?P<who>^|[，,]|我|(?:辞职|离职|跳槽)(?:后|以后|之后)?)去了(?P<firm>{_FIRMS})(?=$|[，,。])"
)


def place_work(text: str, before: str) -> str:
    """我换工作了，现在在字节跳动 as 我换工作了，现在在字节跳动工作."""
    text = _WENT.sub(r"\g<who>去了\g<firm>工作", text)
    if not _NEW_JOB.search(f"{before}，{text}"):
        return text
    return _AT.sub(_work_there, text)


def _work_there(match: re.Match[str]) -> str:
    said = match.group()
    return said if _WORKS.search(match["firm"]) else f"{said}工作"
