"""Messages of the loop and its tools to a model or a parent, in both languages.

Each one says what happened and what to do next. A missing value raises KeyError.
"""

from functools import partial
from pathlib import Path

from memrecall.text.language import fill_phrase, read_phrases
from memrecall.types import Language

_PHRASES = read_phrases(Path(__file__).with_name("phrases.json"))


# Stop reasons, limits and error codes inside Chinese sentences.
_CODES_ZH = {
    # Who claims something
    "assistant": "助手",
    "tool": "工具",
    "import": "导入的数据",
    "iterations": "迭代次数上限",
    "model_calls": "模型调用次数上限",
    "tool_calls": "工具调用次数上限",
    "tokens": "词元数上限",
    "seconds": "时间上限",
    "off_task": "模型没有完成任务",
    "refusal": "模型拒绝作答",
    "truncated_answer": "模型的回答被截断",
    "no_tool_support": "模型不支持工具",
    "model_failed": "模型出错",
    "storage_failed": "存储出错",
    "nothing_stored": "没有存储内容",
    "cancelled": "已取消",
    "timeout": "超时",
    "no_permission": "没有权限",
    "unknown_tool": "没有该工具",
    "not_found": "未找到",
    "invalid_arguments": "参数无效",
    "embedder": "语义搜索不可用",
    "refused": "被拒绝",
    "storage": "存储出错",
    "internal": "内部错误",
    "too_many_searches": "连续搜索过多",
    "repeated": "重复的搜索",
    "not_run": "未执行",
    "unreadable": "结果不完整",
    "unknown": "未知错误",
}

say = partial(fill_phrase, _PHRASES)


def say_codes(language: Language, *codes: str) -> str:
    """Return stop reasons, limits or error codes for use inside a sentence."""
    if language == "zh":
        return "、".join(_CODES_ZH.get(code, code) for code in codes)
    return ", ".join(codes)
