"""A tiny corpus in two languages, with questions about it."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def message(user: str, key: str, day: str, content: str, **extra: Any) -> Json:
    fields = {"user_id": user, "message_id": key, "ts": f"{day}T09:00:00Z", "role": "user"}
    return {**fields, "content": content, **extra}


CORPUS: list[Json] = [
    message("lin", "m1", "2025-01-05", "我不吃辣，海鲜也过敏", session_id="s1"),
    message("lin", "m2", "2025-01-20", "主库的配置叫 db_config_001", session_id="s1"),
    message("lin", "m3", "2025-02-10", "妈妈的生日礼物买了羊绒围巾", session_id="s2"),
    message("lin", "m4", "2025-03-01", "周末去爬香山，天气很好", session_id="s2"),
    message("maya", "m1", "2025-01-03", "My flight to Edinburgh leaves on Friday"),
    message("maya", "m2", "2025-01-15", "I am allergic to peanuts, please remember"),
    message("maya", "m3", "2025-02-02", "The landlord raised the rent to 1,450 pounds"),
    message("maya", "m4", "2025-02-20", "Bought oolong tea at the little shop by the river"),
    {
        "user_id": "maya",
        "memory_key": "tea",
        "content": "Maya's favourite tea is oolong",
        "memory_type": "preference",
        "source_message_ids": ["m4"],
    },
]

QUERIES: list[Json] = [
    {"query_id": "q1", "user_id": "lin", "query": "我对海鲜过敏吗", "evidence": ["m1"],
     "category": "fact", "answer": "是"},
    {"query_id": "q2", "user_id": "lin", "query": "db_config_001", "evidence": ["m2"],
     "category": "name", "as_of": "2025-01"},
    {"query_id": "q3", "user_id": "lin", "query": "妈妈的生日礼物是什么", "evidence": ["m3"],
     "category": "fact", "time_zone": "Asia/Shanghai", "session_id": "s2"},
    {"query_id": "q4", "user_id": "maya", "query": "What tea do I like?",
     "evidence": ["tea", "m4"], "category": "fact"},
    {"query_id": "q5", "user_id": "maya", "category": "name", "evidence": ["m3"],
     "query": "I got a letter today.\nFrom whom?\nThe landlord. How much is the rent now?"},
    {"query_id": "q6", "user_id": "maya", "query": "When does my passport expire?",
     "evidence": [], "category": "unanswerable"},
    {"query_id": "q7", "user_id": "maya", "query": "allergic to peanuts", "evidence": ["m2"],
     "category": "fact", "as_of": "2025-01-10"},
]  # fmt: skip


def write_lines(path: Path, rows: Iterable[Json | str]) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def read_lines(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
