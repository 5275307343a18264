"""Pictures in messages: described wherever messages are stored, never kept, refused if damaged."""

import base64
import hashlib
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from autogen_core import Image
from PIL import Image as Picture
from pydantic import AnyUrl

from memrecall import AsyncMemory, GroupChat, Library, Scope, SingleChat
from memrecall.agent.result import Certainty
from memrecall.chat import Member
from memrecall.errors import InvalidArgument
from memrecall.messages import (
    PICTURE_BYTES,
    PICTURES,
    describe_picture,
    parse_messages,
    parse_new_messages,
)
from tests.importers.reading import read

_buffer = io.BytesIO()
Picture.new("RGB", (3, 2)).save(_buffer, "PNG")
PNG = _buffer.getvalue()
B64 = base64.b64encode(PNG).decode()
URL = f"data:image/png;base64,{B64}"
DETAILS = {"type": "image/png", "size": len(PNG), "sha256": hashlib.sha256(PNG).hexdigest()}

FORMS: dict[str, Any] = {
    "chat completions": {"type": "image_url", "image_url": {"url": URL}},
    "responses": {"type": "input_image", "image_url": URL},
    "Anthropic": {"type": "image", "source": {"media_type": "image/jpeg", "data": B64}},
    "Gemini": {"inlineData": {"mimeType": "image/png", "data": B64}},
    "MCP": {"type": "image", "data": B64, "mimeType": "image/png"},
    "LangChain": {"type": "image", "base64": B64, "mime_type": "image/png"},
    "Agent Framework": SimpleNamespace(type="data", uri=URL, media_type="image/png"),
    "Pydantic AI": SimpleNamespace(kind="binary", data=PNG, media_type="image/png"),
    "AutoGen": Image.from_base64(B64),
    "AI SDK": {"type": "image", "image": URL},
    "AI SDK's models": {"type": "file", "mediaType": "image/png", "data": B64},
    "LlamaIndex": SimpleNamespace(block_type="image", image=B64.encode(), url=None),
}
BAD: dict[str, tuple[Any, str]] = {
    "base64": ("data:image/png;base64,!!", "not valid base64"),
    "format": (f"data:image/png;base64,{base64.b64encode(b'MZ' * 50).decode()}", "no known format"),
    "huge": ("data:image/png;base64," + "A" * (PICTURE_BYTES * 4 // 3 + 8), "at most 20,971,520"),
    "URL": ("http://[x", "not the URL of a picture"),
    "host": ("https:///cat.png", "not the URL of a picture"),
    "script": ("javascript:alert(1)", "not the URL of a picture"),
    "file": ("file:///etc/passwd", "not the URL of a picture"),
    "type": (URL.replace("image/png", "text/html"), "'data:text/html;base64' is not a picture"),
    "no type": (URL.replace("image/png", ""), "is not a picture"),
    "cut": (f"data:image/png;base64,{B64[:40]}", "a picture of 30 bytes is cut off"),
    "none": (None, "neither data nor a URL"),
}
LIN = Member(member_id="lin", name="Lin")


def say(url: str | None = URL, text: str = "Our boat in Lisbon", **fields: Any) -> dict[str, Any]:
    picture = {"type": "image_url", "image_url": url and {"url": url}, **fields}
    return {"role": "user", "content": [{"type": "text", "text": text}, picture]}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_described(form: str) -> None:
    (message,) = parse_new_messages({"role": "user", "content": ["Look", FORMS[form]]})
    assert (message.content, message.metadata) == ("Look\n[image]", {PICTURES: [DETAILS]})
    assert parse_messages({"content": ["Look", FORMS[form]]})[0].metadata == {}


@pytest.mark.parametrize(
    ("part", "details"),
    [
        (
            {"image_url": {"url": "https://me:pw@host/a/cat.jpg?key=secret#x"}, "alt": "A cat"},
            {"type": "image/jpeg", "url": "https://host/a/cat.jpg", "alt": "A cat"},
        ),
        ({"image": "HTTPS://host/a.gif"}, {"type": "image/gif", "url": "https://host/a.gif"}),
        ({"image_url": {"file_id": "f1", "alt": "A cat"}}, {"type": "image", "alt": "A cat"}),
        ({"file_id": "f1"}, {"type": "image"}),
        ({"source": {"file_id": "f1"}}, {"type": "image"}),
        ({"url": AnyUrl("http://host/a.gif")}, {"type": "image/gif", "url": "http://host/a.gif"}),
    ],
)
def test_pictures_elsewhere(part: dict[str, Any], details: dict[str, Any]) -> None:
    assert describe_picture({"type": "input_image", **part}) == details


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "WEBP"])
def test_cut_pictures_are_refused(form: str) -> None:
    buffer = io.BytesIO()
    Picture.effect_noise((40, 30), 50).convert("RGB").save(buffer, form)
    data = buffer.getvalue()
    if form == "JPEG":  # with a thumbnail, which is whole
        thumbnail = b"\xff\xe1" + (len(data) + 2).to_bytes(2) + data
        data = data[:2] + thumbnail + data[2:]
    assert describe_picture({"data": data})["type"] == f"image/{form.lower()}"
    assert describe_picture({"data": data + b"\0\0"})["size"] == len(data) + 2
    for size in (20, len(data) // 2, len(data) - 40, len(data) - 1):
        with pytest.raises(InvalidArgument, match=f"a picture of {size:,} bytes is cut off"):
            describe_picture({"data": data[:size]})


@pytest.mark.parametrize("name", BAD)
async def test_bad_picture_stores_nothing(library: Library, name: str) -> None:
    url, problem = BAD[name]
    memory = AsyncMemory(library=library, user_id="ann")
    with pytest.raises(InvalidArgument, match=problem):
        await memory.add([{"role": "user", "content": "I like tea."}, say(url)])
    with pytest.raises(InvalidArgument, match=problem):
        await SingleChat(library, Scope("ann")).answer(say(url)["content"])
    assert (await memory.get_all(kinds="messages"))["results"] == []
    assert (await memory.recall(say(url))).memories == []  # a recall does not read pictures


async def test_text_and_caption_are_found_and_bytes_are_not_kept(library: Library) -> None:
    memory = AsyncMemory(library=library, user_id="ann")
    await memory.add(say(caption="A red sail"), infer=False)
    await SingleChat(library, Scope("ann")).answer(say(text="Our dog in Porto")["content"])
    group = GroupChat(library, Scope("ann"), [LIN])
    await group.post("lin", say(text="Our tent in Faro")["content"])
    for query in ("boat Lisbon", "red sail", "dog Porto", "tent Faro"):
        item = (await memory.search(query))["results"][0]
        assert item["metadata"][PICTURES][0]["sha256"] == DETAILS["sha256"]
        assert B64[:40] not in json.dumps(item)


async def test_marker_is_no_word_of_a_request(library: Library) -> None:
    memory = AsyncMemory(library=library, user_id="ann")
    pictures = [say(text=text) for text in ("This rash on my arm", "The receipt from the shop")]
    await memory.add([*pictures, "My kayak is in the cellar"], infer=False)
    alone = {"role": "user", "content": say()["content"][1:]}
    for request in (alone, [alone, alone]):
        assert (await memory.recall(request)).memories == []
    assert (await memory.recall(say(text="What is this?"))).certainty is not Certainty.SURE
    for text in ("Where is my kayak?", "翻译图片里的文字"):
        plain, asked = await memory.recall(text), await memory.recall(say(text=text))
        for name in ("memories", "confidence", "missing", "language"):
            assert getattr(asked, name) == getattr(plain, name)


@pytest.mark.parametrize("name", ["conversation.json", "lines.jsonl"])
def test_imported_pictures(tmp_path: Path, name: str) -> None:
    ids = {"user_id": "ann", "ts": "2026-01-01T00:00:00Z"}
    messages = [{**say(), **ids}, {**say(BAD["base64"][0]), **ids}]
    is_lines = name.endswith("jsonl")
    text = "\n".join(map(json.dumps, messages)) if is_lines else json.dumps(messages)
    (tmp_path / name).write_text(text)
    result = read(tmp_path / name)
    (message,) = result.messages
    assert (message.content, message.metadata) == (
        "Our boat in Lisbon\n[image]",
        {PICTURES: [DETAILS]},
    )
    assert len(result.survey.bad) == 1
