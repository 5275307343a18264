"""Chats that were copied as text, Markdown notes, notices of groups, and unknown text."""

from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from memrecall.errors import InvalidArgument
from memrecall.types import format_time
from tests.importers.reading import FIXTURES, Result, read

CHAT, NOTES = FIXTURES / "chat", FIXTURES / "markdown"
SHANGHAI = ZoneInfo("Asia/Shanghai")


def written(folder: Path, text: str, name: str = "copy.txt") -> Path:
    file = folder / name
    file.write_text(text, "utf-8")
    return file


def times(result: Result) -> list[str | None]:
    return [format_time(item.ts) if item.ts else None for item in result.messages]


def test_lines_with_a_clock_have_the_day_of_the_file_name() -> None:
    result = read(CHAT / "2026-03-18.txt", me="Ben", zone=SHANGHAI)
    assert result.said == [
        ("other", "Anna", "Who brings the projector?"),
        ("user", "Ben", "I do. It is in room 4,\nsecond shelf."),
        ("other", "Anna", "Great"),
    ]
    assert times(result)[0] == "2026-03-18T04:03:00Z"
    assert (result.survey.formats, result.survey.notes) == ({"chat": 1}, [])


def test_wechat_copy_has_the_name_and_the_time_above_each_text() -> None:
    result = read(CHAT / "微信复制.txt", me="小李", zone=SHANGHAI)
    assert result.said == [
        ("other", "老王", "明天几点出发？"),
        ("user", "小李", "八点，北门集合\n地址：学院路 3 号"),
    ]
    assert times(result) == ["2026-03-18T04:03:00Z", "2026-03-18T04:04:00Z"]
    assert result.survey.skipped == {"notices": 1, "media without text": 1}


def test_names_of_one_character_leave_the_date(tmp_path: Path) -> None:
    for one, other in (("我", "王"), ("A", "B")):
        text = f"{one} 2026/3/18 12:03\n好\n{other} 2026/3/18 12:05\n走\n"
        result = read(written(tmp_path, text), me=one)
        assert result.said == [("user", one, "好"), ("other", other, "走")]
        assert times(result) == ["2026-03-18T12:03:00Z", "2026-03-18T12:05:00Z"]


def test_copies_have_plain_colons_titles_and_days_without_a_year(tmp_path: Path) -> None:
    said = [("other", "Ann", "hello\nthere"), ("user", "老王", "好"), ("other", "Ann", "see you")]
    lines = "Ann: hello\nthere\n老王: 好\nAnn: see you\n"
    for text in (lines, f"Hiking group\n\n{lines}", lines.replace(": ", ":\n")):
        assert read(written(tmp_path, text), me="老王").said == said
    assert read(written(tmp_path, f"Hiking\n{lines}")).survey.skipped == {"notices": 1}
    days = ("3月18日", "昨天", "星期二", "3月19日")
    text = "".join(f"老王 {day} 12:03\n好\n" for day in days)
    result = read(written(tmp_path, text, "2026-03-18.txt"), me="老王")
    assert times(result) == [
        f"202{n}T12:03:00Z" for n in ("6-03-18", "6-03-17", "6-03-17", "5-03-19")
    ]


def test_names_with_a_full_width_colon_need_no_times() -> None:
    result = read(CHAT / "群聊.txt", me="老王")
    assert result.said == [
        ("user", "老王", "周六爬香山去不去？"),
        ("other", "小李", "去，我带热水\n还有三明治"),
        ("user", "老王", "好"),
    ]
    assert times(result) == [None] * 3
    assert "using the import time" in result.survey.notes[0]


def test_line_of_a_date_is_the_day_of_the_lines_below(tmp_path: Path) -> None:
    text = "—— 2026年3月17日 星期二 ——\n23:58 Anna: late\n2026-03-18\n0:03 Ben: later\n"
    result = read(written(tmp_path, text))
    assert times(result) == ["2026-03-17T23:58:00Z", "2026-03-18T00:03:00Z"]


OTHER = (
    "Dear Anna,\nsee you: soon\n",
    "注意：一行\n别的\n",
    "a: b\nc: d\n",
    "[12:03]",
    "",
    '{"foo": 1}\n',
)


@pytest.mark.parametrize("text", OTHER)
def test_other_text_is_not_recognised(tmp_path: Path, text: str) -> None:
    for name in ("copy.txt", *["copy.jsonl"] * bool(text)):
        with pytest.raises(InvalidArgument, match=r"not recognised.*whatsapp.*markdown, chat"):
            read(written(tmp_path, text, name))


def test_markdown_has_a_note_for_each_heading() -> None:
    result = read(NOTES, user="lin", zone=SHANGHAI)
    assert [item.content for item in result.messages] == [
        "We take the green tiles, 14 € each.",
        "2026-02-09 Delivery\nThe tiles come on Thursday; [[Maya]] opens the door.",
        "Dentist\nDr. Okafor moved my appointment to April 2, 9:15.\n\n"
        "```sh\n# not a heading\nmake tea\n```",
        "读书\n《三体》看到第二部，借自小林。",
    ]
    days = ["2026-02-01T02:30:00Z", "2026-02-08T16:00:00Z", *["2026-03-17T16:00:00Z"] * 2]
    assert times(result) == days
    titles = [item.metadata["conversation"] for item in result.messages]
    assert titles == ["New kitchen"] * 2 + ["2026-03-18"] * 2
    assert result.survey.skipped == {"headings without text": 1}
    assert (result.missing, len(result.survey.conversations)) == ([], 2)


def test_front_matter_has_dates_in_words_or_a_note_names_them(tmp_path: Path) -> None:
    for day, found in (("March 7, 2026", ["2026-03-07T00:00:00Z"]), ("the ides", [None])):
        result = read(written(tmp_path, f"---\ndate: {day}\n---\ntext\n", "a.md"))
        assert times(result) == found
        assert [day in note for note in result.survey.notes] == [True] * (found == [None])


def test_notices_of_groups_are_no_media(tmp_path: Path) -> None:
    lines = ("Anna added Ben", "image omitted", "Bild weggelassen", "图像已忽略", "Uwe left")
    text = "".join(f"[31.12.23, 21:41:05] Lake: \u200e{line}\n" for line in lines)
    assert read(written(tmp_path, text)).survey.skipped == {"notices": 2, "media without text": 3}
    head = "localId,Type,IsSender,CreateTime,StrContent,NickName\n"
    texts = ('""小李""撤回了一条消息', "你修改群名为“爬山”", "我昨天拍了拍他")
    rows = "".join(f'{n},1,0,176735733{n},"{text}",群\n' for n, text in enumerate(texts))
    result = read(written(tmp_path, head + rows, "wechat.csv"))
    assert [text for _, _, text in result.said] == ["我昨天拍了拍他"]
    assert result.survey.skipped == {"notices": 2}


def test_name_of_a_model_message_is_the_speaker(tmp_path: Path) -> None:
    line = '{"role": "user", "name": "Anna", "content": "hi"%s}\n'
    assert read(written(tmp_path, line % "", "a.jsonl")).said == [("user", "Anna", "hi")]
    own = line % ', "message_id": "m1", "ts": "2026-03-01T09:00:00Z"'
    assert read(written(tmp_path, own, "b.jsonl"), user="anna").said == [("user", "Anna", "hi")]


def mail(number: int, headers: str) -> str:
    time = f"Date: Mon, 12 Jan 2026 1{number}:00:00 +0000"
    return f"From a@b Mon\nMessage-ID: <{number}@x>\nFrom: a@b\n{time}\n{headers}\n\ntext\n\n"


def test_mail_thread_is_one_session_in_any_order(tmp_path: Path) -> None:
    mails = [
        mail(4, "In-Reply-To: <3@x>\nSubject: Something else"),
        mail(3, "In-Reply-To: <2@x>\nSubject: Re: tiles"),
        mail(2, "References: <1@x>\nSubject: Re: tiles"),
        *(mail(1, "Subject: tiles"), mail(5, "Subject: tiles")),
        *(mail(6, "In-Reply-To: <7@x>"), mail(7, "In-Reply-To: <6@x>")),
    ]
    result = read(written(tmp_path, "".join(mails), "mail.mbox"))
    sessions = [record.session_id for record in result.records]
    assert sessions[:4] == sessions[:1] * 4
    assert len(set(sessions)) == 3
    (tmp_path / "mail.mbox").unlink()
    for number, text in enumerate(mails):  # one file each
        written(tmp_path, text.partition("\n")[2], f"{number}.eml")
    assert [record.session_id for record in read(tmp_path).records] == sessions
