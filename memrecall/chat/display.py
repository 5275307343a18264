"""The end of a chat turn as a notebook shows it."""

from memrecall.chat.events import Final
from memrecall.text.html import TEXT, box, clip, labels, note, tag, warning

_LABELS = {
    "silent": ("chose to say nothing", "选择不发言"),
    "degraded": ("the model gave no clean answer", "模型没有给出完整的回答"),
    "leaked": ("a tool call written as text was hidden", "隐藏了一个写成文字的工具调用"),
    "recalls": ("recalls", "次回忆"),
    "model_calls": ("model calls", "次模型调用"),
    "tokens": ("tokens", "个词元"),
}


def final_html(final: Final) -> str:
    """An answer, what went wrong on the way to it, and what it cost."""
    say = labels(_LABELS, final.language)
    told = [say("degraded")] if final.degraded else []
    told += [
        f"{say('leaked')}: {leak.family}" + (f" ({leak.name})" if leak.name else "")
        for leak in final.leaks
    ]
    answer = tag("div", clip(final.text, say), style=TEXT)
    return str(
        box(
            note(say("silent")) if final.silent else answer,
            *map(warning, told),
            note(_cost(final)),
        )
    )


def _cost(final: Final) -> str:
    say = labels(_LABELS, final.language)
    tokens = sum(final.usage.values())
    parts = [
        *([final.model] if final.model else []),
        f"{final.recalls} {say('recalls')}",
        f"{final.model_calls} {say('model_calls')}",
        *([f"{tokens:,} {say('tokens')}"] if tokens else []),
        *([final.message_id] if final.message_id else []),
    ]
    return " · ".join(parts)
