"""The texts of the user interface, English and Chinese, by name."""

Words = dict[str, tuple[str, str]]

FRAME: Words = {
    "overview": ("Overview", "概览"),
    "explorer": ("Explorer", "浏览"),
    "recalls": ("Recalls", "回忆"),
    "evaluations": ("Evaluations", "评测"),
    "try_it": ("Try it", "试一试"),
    "menu": ("Menu", "菜单"),
    "skip": ("Skip to the content", "跳到正文"),
    "language": ("中文", "English"),
    "language_hint": ("Show this page in Chinese", "用英文显示本页"),
    "theme_auto": ("Theme: the system's", "主题：跟随系统"),
    "theme_light": ("Theme: light", "主题：浅色"),
    "theme_dark": ("Theme: dark", "主题：深色"),
    "sign_out": ("Sign out", "退出"),
    "open": ("Open: no key is needed on this machine", "开放：本机无需密钥"),
    "user": ("User", "用户"),
    "choose_user": ("Whose data?", "查看哪位用户？"),
    "choose_user_hint": ("Type the beginning of a user's id", "输入用户 ID 的开头"),
    "no_users": ("Nobody has stored anything yet.", "还没有任何用户的数据。"),
    "show": ("Show", "查看"),
    "failed": ("Something went wrong inside.", "内部出错。"),
    "not_found": ("There is nothing here that this key may see.", "没有该密钥可以查看的内容。"),
    "refused": ("This is not allowed", "不允许"),
    "older": ("Older", "更早"),
    "newest": ("Newest", "最新"),
    "more": ("More", "更多"),
    "cancel": ("Cancel", "取消"),
    "close": ("Close", "关闭"),
    "none": ("none", "无"),
    "of_agent": ("agent {agent}", "智能体 {agent}"),
}

SIGN_IN: Words = {
    "sign_in": ("Sign in", "登录"),
    "sign_in_hint": (
        "This service needs a key. `memrecall keys create` makes one.",
        "本服务需要密钥，可用 `memrecall keys create` 生成。",
    ),
    "key": ("Key", "密钥"),
    "key_refused": (
        "The key is unknown, revoked or expired.",
        "密钥不存在、已撤销或已过期。",
    ),
}

WORDS: Words = {**FRAME, **SIGN_IN}
