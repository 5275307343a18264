"""The formats of chat exports: what is read of the fixture of each, and what is skipped."""

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from memrecall.errors import InvalidArgument
from memrecall.importers.plan import FORMATS
from memrecall.types import format_time
from tests.cases import read_rows
from tests.importers.reading import FIXTURES, read


def times(path: Path, **options: Any) -> list[str]:
    return [format_time(item.ts) for item in read(path, **options).messages if item.ts]


def test_every_format_has_a_fixture_that_is_recognised() -> None:
    recognised = {}
    for folder in sorted(FIXTURES.iterdir()):
        result = read(folder)
        assert result.survey.bad == []
        recognised[folder.name] = set(result.survey.formats)
    names = {known.name for known in FORMATS if known.name != "jsonl"}
    assert recognised == {name: {name} for name in names}


def test_chatgpt_follows_the_current_branch() -> None:
    result = read(FIXTURES / "chatgpt")
    assert result.said == [
        (
            "user",
            None,
            "I fly to Lisbon on March 14 with my sister Ana. Where do we eat grilled sardines?",
        ),
        ("assistant", None, "Try the taverns of Alfama, best in June."),
        ("user", None, "Is this menu vegetarian? Ana does not eat meat."),
        ("user", None, "我五月搬到杭州西溪，猫叫豆包，怎么带它上高铁？"),
        ("assistant", None, "高铁可以办理宠物托运，需要提前两天预约。"),
    ]
    assert result.ids[:3] == ["chatgpt-q1", "chatgpt-a1", "chatgpt-q2"]
    assert [record.session_id for record in result.records][-1] == (
        "chatgpt-6f1c0c58-0000-4000-8000-000000000002"
    )
    assert result.messages[0].metadata == {"conversation": "Trip to Lisbon"}
    assert result.messages[2].metadata["pictures"] == [{"type": "image"}]
    assert result.survey.skipped == {
        "other branches": 2,
        "hidden system messages": 1,
        "tool calls, reasoning and media without text": 1,
    }


def test_chatgpt_message_without_a_time_keeps_its_place(tmp_path: Path) -> None:
    def node(name: str, parent: str | None, role: str, time: float | None) -> dict[str, object]:
        content = {"content_type": "text", "parts": [name]}
        message = {"author": {"role": role}, "create_time": time, "content": content}
        return {"parent": parent, "message": message}

    nodes = {
        "q1": node("q1", None, "user", 1700000010.5),
        "a1": node("a1", "q1", "assistant", 1700000020.0),
        "q2": node("q2", "a1", "user", None),
    }
    conversation = {"create_time": 1700000000.0, "mapping": nodes, "current_node": "q2"}
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([conversation]))
    assert [text for _, _, text in read(file).said] == ["q1", "a1", "q2"]
    assert times(file)[1:] == ["2023-11-14T22:13:40Z"] * 2


def test_claude_reads_text_blocks_and_names_files() -> None:
    result = read(FIXTURES / "claude")
    assert [text for _, _, text in result.said] == [
        "My starter is called Gerald and rises for nine hours. Too long?",
        "Nine hours at 20 °C is fine.",
        "[file] crumb.txt",
        "我爸的尿酸是 512，他不肯戒海鲜。",
        "512 偏高，建议先少吃贝类和动物内脏。",
    ]
    assert result.messages[2].content_type == "file"
    assert {item.role.value for item in result.messages} == {"user", "assistant"}


def test_gemini_reads_prompts_and_the_last_draft() -> None:
    result = read(FIXTURES / "gemini")
    assert result.said == [
        ("user", None, "帮我把奶奶的红烧肉菜谱换成电饭锅版"),
        ("assistant", None, "五花肉切块焯水，\n- 加 2 勺生抽\n- 煮饭键 1 次"),
        ("user", None, "Which bus goes from Bergen airport to the hotel Ole Bull?"),
        ("assistant", None, "The Flybussen, every 10 minutes; fare < 200 kr."),
    ]
    assert result.records[0].session_id == "gemini-2026-02-03"


def test_gemini_in_html_is_refused_with_the_way_out(tmp_path: Path) -> None:
    file = tmp_path / "MyActivity.html"
    file.write_text("<html><title>My Activity</title><body>Gemini Apps</body></html>")
    with pytest.raises(InvalidArgument, match="Choose JSON"):
        read(file)


def test_whatsapp_of_android_in_english() -> None:
    result = read(FIXTURES / "whatsapp" / "WhatsApp Chat with Lake.txt", me="tom")
    assert result.said == [
        ("other", "Maya Lopez", "Happy new year! 🎉\nSee you at the lake on the 6th?"),
        ("user", "Tom", "ok"),
        ("user", "Tom", "ok"),
        ("other", "Maya Lopez", "[image] IMG-20240106-WA0001.jpg\nthe frozen pier"),
        ("user", "Tom", "Bring the red thermos, Jo is allergic to nuts."),
    ]
    assert len(set(result.ids)) == 5
    assert (
        times(FIXTURES / "whatsapp" / "WhatsApp Chat with Lake.txt")[-1] == "2024-01-06T08:10:00Z"
    )
    assert result.messages[0].metadata == {"conversation": "Lake"}
    assert result.survey.skipped == {"notices": 2, "media without text": 1, "deleted messages": 1}


def test_whatsapp_of_android_skips_deleted_messages_in_other_languages(tmp_path: Path) -> None:
    file = tmp_path / "chat.txt"
    texts = [
        "Diese Nachricht wurde gelöscht.",
        "Se eliminó este mensaje.",
        "Ce message a été supprimé",
        "Mensagem apagada",
        "Questo messaggio è stato eliminato",
        "Um acht? <Diese Nachricht wurde bearbeitet.>",
        "At eight? \u200e<This message was edited>",
        "Diese Nachricht wurde gelöscht. Warum?",
    ]
    file.write_text("".join(f"31.12.23, 21:41 - A: {text}\n" for text in texts), "utf-8")
    result = read(file)
    said = ["Um acht?", "At eight?", "Diese Nachricht wurde gelöscht. Warum?"]
    assert [text for _, _, text in result.said] == said
    assert result.survey.skipped == {"deleted messages": 5}


def test_whatsapp_of_ios_in_german() -> None:
    result = read(FIXTURES / "whatsapp" / "_chat.txt", me="Papa")
    assert result.said == [
        ("other", "Oma Inge", "Der Zug kommt um 14:05 Uhr in Ulm an."),
        ("user", "Papa", "[image] 00000012-PHOTO-2024-01-01-09-12-30.jpg"),
        ("other", "Uwe", "Ich bringe den Schlitten mit."),
    ]
    assert result.messages[1].content_type == "image"
    assert times(FIXTURES / "whatsapp" / "_chat.txt")[0] == "2023-12-31T21:41:05Z"


def test_whatsapp_in_chinese() -> None:
    file = FIXTURES / "whatsapp" / "与家人的 WhatsApp 聊天.txt"
    result = read(file, me="小雨", zone=ZoneInfo("Asia/Shanghai"))
    assert result.said == [
        ("user", "小雨", "妈，我初二回家，带女朋友小雪一起。"),
        ("other", "妈妈", "好呀，她吃辣吗？"),
        ("user", "小雨", "不吃辣，对花生过敏\n别放花生"),
    ]
    assert times(file) == ["2023-12-31T21:41:00Z", "2023-12-31T21:42:00Z", "2024-01-01T00:05:00Z"]
    assert times(file, zone=ZoneInfo("Asia/Shanghai"))[0] == "2023-12-31T13:41:00Z"
    assert result.messages[0].metadata == {"conversation": "家人"}


@pytest.mark.parametrize(("line", "time"), read_rows("imports", "dates"))
def test_whatsapp_reads_dates_of_many_places(tmp_path: Path, line: str, time: str) -> None:
    file = tmp_path / "chat.txt"
    file.write_text(f"{line}\n", "utf-8")
    assert read(file).survey.formats == {"whatsapp": 1}
    assert times(file) == [time]


def test_whatsapp_decides_the_date_order_by_the_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "chat.txt"
    file.write_text("3/4/24, 10:00 - A: x\n3/5/24, 10:00 - A: y\n3/25/24, 10:00 - A: z\n")
    assert times(file)[0] == "2024-03-04T10:00:00Z"
    # No day above 12, but only one order keeps the messages in order.
    file.write_text("3/4/24, 10:00 - A: x\n10/4/24, 10:00 - A: y\n2/5/24, 10:00 - A: z\n")
    assert times(file) == ["2024-04-03T10:00:00Z", "2024-04-10T10:00:00Z", "2024-05-02T10:00:00Z"]
    assert read(file).survey.notes == []


def test_whatsapp_says_that_dates_are_ambiguous(tmp_path: Path) -> None:
    file = tmp_path / "chat.txt"
    file.write_text("3/4/24, 10:00 - A: x\n")
    (note,) = read(file).survey.notes
    assert "3/4/24" in note
    assert "--date-order" in note
    assert times(file) == ["2024-04-03T10:00:00Z"]
    assert times(file, date_order="mdy") == ["2024-03-04T10:00:00Z"]


def test_telegram_knows_the_account_and_resolves_replies() -> None:
    result = read(FIXTURES / "telegram")
    assert result.said == [
        ("other", "Nadia", "The exam is in room B-204, see https://example.org/exam"),
        ("user", "Lin Xiao", "收到，我带计算器和准考证。"),
        ("other", "Nadia", "[file] syllabus.pdf"),
    ]
    assert result.messages[1].metadata["reply_to"] == result.ids[0] == "telegram-4242-2"
    assert result.survey.skipped == {"notices": 1, "media without text": 1}


def test_telegram_reads_a_single_chat(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    file.write_text(
        '{"name": "N", "type": "personal_chat", "id": 7, "messages": [{"id": 1, "type": "message",'
        '"date": "2026-01-10T09:01:00", "from": "N", "from_id": "user2", "text": "hi"}]}'
    )
    result = read(file, me="user2", zone=ZoneInfo("Asia/Shanghai"))
    assert result.said == [("user", "N", "hi")]
    assert times(file, zone=ZoneInfo("Asia/Shanghai")) == ["2026-01-10T01:01:00Z"]


def test_slack_resolves_mentions_links_and_threads(tmp_path: Path) -> None:
    result = read(FIXTURES / "slack", me="maya@example.org")
    assert result.said == [
        ("other", "陈曦", "Can you cover my on-call shift on Friday?"),
        (
            "user",
            "maya",
            "@陈曦 the launch moves to the plan (https://example.org/plan) & week 9 @here",
        ),
        ("other", "陈曦", "好的，我通知供应商。"),
        ("user", "maya", "[file] Budget 2026"),
    ]
    assert result.messages[2].metadata == {
        "conversation": "general",
        "reply_to": "slack-C01-1768208460.000200",
    }
    archive = shutil.make_archive(str(tmp_path / "export"), "zip", FIXTURES / "slack")
    assert read(Path(archive), me="maya").ids == result.ids


def test_discord_reads_replies_and_zones() -> None:
    result = read(FIXTURES / "discord", me="lin")
    assert result.said == [
        ("other", "Kai", "Raid at eight, bring the frost potions"),
        ("user", "林晓", "我迟到十分钟，先别开 Boss"),
    ]
    assert times(FIXTURES / "discord")[1] == "2026-01-20T18:01:00Z"
    assert result.messages[1].metadata["reply_to"] == "discord-100"


def test_wechat_reads_the_common_export_tools() -> None:
    result = read(FIXTURES / "wechat", zone=ZoneInfo("Asia/Shanghai"))
    assert sorted(result.said) == sorted(
        [
            ("other", "阿华（驾校）", "驾照科目二我周四考"),
            ("user", None, "Good luck! 倒车入库慢一点"),
            ("other", "小明", "房东说押金月底退，三千二。"),
            ("user", None, "收到，帮我问下能不能转支付宝"),
            ("other", "陈曦", "周六去爬香山吗？\n七点西直门集合"),
            ("user", None, "去，我带热水和三明治，不要花生酱。"),
        ]
    )
    assert times(FIXTURES / "wechat" / "小明.txt", zone=ZoneInfo("Asia/Shanghai"))[0] == (
        "2026-01-02T01:15:30Z"
    )


def test_mbox_decodes_mails_and_cuts_quotes() -> None:
    result = read(FIXTURES / "mbox", me="maya@example.org")
    assert result.said == [
        (
            "user",
            "Maya Lopez",
            "Kitchen tiles\nWe take the green tiles, 14 € each. The plumber Mr. Okafor comes on\n"
            "Thursday.\n\nFrom the shop: delivery in two weeks.",
        ),
        ("other", "陈曦", "周四我下午才在家，门禁码是 0731"),
        ("user", "Maya Lopez", "Then I let him in at nine."),
    ]
    assert len({record.session_id for record in result.records}) == 1
    assert times(FIXTURES / "mbox")[0] == "2026-01-12T09:00:00Z"


def test_mem0_memories_stay_memories() -> None:
    result = read(FIXTURES / "mem0")
    assert [(memory.content, memory.metadata) for memory in result.memories] == [
        ("Is allergic to shellfish", {"type": "health", "categories": ["health"]}),
        ("喜欢周末去西湖跑步", {}),
    ]
    assert {record.user_id for record in result.records} == {"lin"}
    assert result.missing == []


def test_openai_messages_need_no_ids() -> None:
    lines = read(FIXTURES / "openai" / "messages.jsonl")
    assert [text for _, _, text in lines.said][-2:] == ["好的", "好的"]
    assert len(set(lines.ids)) == 5
    assert len(lines.survey.conversations) == 1
    conversations = read(FIXTURES / "openai" / "conversations.jsonl")
    assert len(conversations.survey.conversations) == 2
    assert conversations.said[4] == ("user", None, "发票抬头写哪个公司？")


def test_csv_columns_are_mapped(tmp_path: Path) -> None:
    file = FIXTURES / "csv" / "support.csv"
    columns = {"text": "Body", "time": "when", "speaker": "who", "session": "ticket"}
    result = read(file, columns=columns, me="Priya")
    assert result.said[:2] == [
        ("user", "Priya", "The lift in block C is stuck; again"),
        ("other", "Support", "师傅十点到"),
    ]
    assert [record.session_id for record in result.records] == ["csv-T-1", "csv-T-1", "csv-T-2"]
    assert result.messages[0].ts
    assert format_time(result.messages[0].ts) == "2026-02-13T09:00:00Z"
    with pytest.raises(InvalidArgument, match="ticket, when, who, body"):
        read(file, columns={"text": "nothing"})
    assert read(file).survey.notes == [
        "no time column found: using the import time (set one with --map time=COLUMN)",
        "no speaker column found: treating every message as the user's",
    ]
    assert result.survey.notes == []
    unknown = tmp_path / "table.csv"
    unknown.write_text("a,b\n1,2\n")
    with pytest.raises(InvalidArgument, match="--map text=COLUMN"):
        read(unknown)


def test_archive_is_read_like_its_folder(tmp_path: Path) -> None:
    archive = tmp_path / "export.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.write(FIXTURES / "chatgpt" / "conversations.json", "conversations.json")
        packed.writestr("chat.html", "<html></html>")
    result = read(archive)
    assert result.ids == read(FIXTURES / "chatgpt").ids
    assert result.survey.skipped["other files"] == 1
    whatsapp = tmp_path / "WhatsApp Chat - Lake (1).zip"
    with zipfile.ZipFile(whatsapp, "w") as packed:
        packed.write(FIXTURES / "whatsapp" / "WhatsApp Chat with Lake.txt", "_chat.txt")
    same = read(FIXTURES / "whatsapp" / "WhatsApp Chat with Lake.txt")
    assert read(whatsapp).ids == same.ids


def test_longer_export_keeps_the_ids_of_derived_messages(tmp_path: Path) -> None:
    name = "WhatsApp Chat with Lake.txt"
    lines = (FIXTURES / "whatsapp" / name).read_text("utf-8").splitlines(keepends=True)
    (tmp_path / name).write_text(
        "".join([*lines[3:], "1/7/24, 8:10 AM - Tom: new\n"]), encoding="utf-8"
    )
    earlier, later = read(FIXTURES / "whatsapp" / name).ids, read(tmp_path / name).ids
    assert later[:-1] == earlier[1:]
    assert later[-1] not in earlier
