"""Feedback on recalls, and the evaluation set that it makes."""

import json
from pathlib import Path
from typing import Any

from tests.server.server_process import ServerProcess, run_command

from .conftest import Window

Keyed = tuple[ServerProcess, dict[str, str]]


async def open_recall(window: Window, user: str, question: str) -> None:
    # The oldest recall of a question is that of the sample; other tests repeat some.
    await window.open(f"/recalls?user={user}")
    await window.page.locator(f".mr-list a:has-text('{question}')").last.click()
    await window.page.wait_for_selector("h2:has-text('Feedback')")
    await window.ready()


async def test_labelled_recalls_are_questions_of_an_evaluation(
    window: Window, tmp_path: Path, folder: Path
) -> None:
    page = window.page
    for user, question, message in (
        ("maya", "Who has my spare key?", ""),
        ("lin", "我对什么过敏来着？", "海鲜也过敏"),
    ):
        await open_recall(window, user, question)
        thumb = page.locator("button:has-text('Wrong')")
        await (page.locator("button:has-text('Right')") if not message else thumb).click()
        await page.wait_for_selector("button[aria-pressed=true]")
        if message:
            boxes = page.locator(".q-checkbox")
            lefts = "(boxes) => boxes.map((box) => box.getBoundingClientRect().left)"
            assert len(set(await page.locator(".q-checkbox__inner").evaluate_all(lefts))) == 1
            assert await page.locator(".q-checkbox[aria-checked=true]").count() == 0
            await boxes.filter(has_text=message).first.click()
        await page.click("button:has-text('Add to evaluation set')")
        await page.wait_for_selector("button:has-text('Remove from evaluation set')")
    await window.open("/recalls?user=lin")
    assert await page.locator("[role=img][aria-label=Wrong]").count() == 1
    await window.open("/evaluations")
    text = await window.text()
    assert "Questions: 2, users: 2" in text
    database = folder / "open" / "sample.db"
    assert f"memrecall export --user lin --db {database} >> corpus.jsonl" in text
    async with page.expect_download() as waiting:
        await page.click("button:has-text('Download questions')")
    await (await waiting.value).save_as(tmp_path / "questions.jsonl")
    lines = (tmp_path / "questions.jsonl").read_text("utf-8").splitlines()
    questions = [json.loads(line) for line in lines]
    assert {question["user_id"] for question in questions} == {"maya", "lin"}
    assert all(question["evidence"] for question in questions)
    summary = evaluate(database, tmp_path)
    assert summary["counts"]["answered"] == 2
    assert summary["counts"]["evidence_hidden_by_as_of"] == 0
    assert summary["metrics"]["overall"]["recall@10"]["value"] == 1.0
    await remove_labels(window)


def evaluate(database: Path, folder: Path) -> dict[str, Any]:
    """Run the commands that the page shows."""
    with (folder / "corpus.jsonl").open("w") as corpus:
        for user in ("lin", "maya"):
            exported = run_command(folder, "export", "--user", user, "--db", database)
            assert exported.returncode == 0, exported.stderr
            corpus.write(exported.stdout)
    files = ("--corpus", folder / "corpus.jsonl", "--queries", folder / "questions.jsonl")
    out = ("--mode", "search", "--out", folder / "run", "--json")
    completed = run_command(folder, "eval", "run", *files, *out, MEMRECALL_EMBEDDER="hash")
    assert completed.returncode == 0, completed.stderr
    summary: dict[str, Any] = json.loads(completed.stdout)
    return summary


async def remove_labels(window: Window) -> None:
    for user, question in (("maya", "Who has my spare key?"), ("lin", "我对什么过敏来着？")):
        await open_recall(window, user, question)
        await window.page.click("button:has-text('Remove feedback')")
        await window.page.wait_for_selector("button:has-text('Remove feedback')", state="detached")


async def test_another_message_can_be_named_and_must_exist(window: Window) -> None:
    page = window.page
    await open_recall(window, "maya", "When does my passport expire?")
    await page.fill("[aria-label^='Another message']", "unknown-id")
    await page.click("button:has-text('Save selection')")
    await page.wait_for_selector("text=the user has no message or memory")
