"""Chat turns without a model: answers quote what was recalled."""

from datetime import timedelta

from memrecall.agent.phrases import to_json
from memrecall.chat import SingleChat
from memrecall.chat.offline import single_answer
from memrecall.memory import Library
from memrecall.model import protocol
from memrecall.scope import Scope
from memrecall.store import PlanStep
from memrecall.testing import ScriptedClient, say
from memrecall.types import Language, NewMemory, NewMessage, Origin, Role
from tests.cases import check_each_async

from .chat_helpers import LIN, LISBON, NOW, PEANUTS, QUESTION_EN, collect_turn, make_options

NOTHING = (
    "I found nothing about this in earlier conversations. I have stored what you said; no model is "
    "configured, so I can only keep and find messages."
)
NOTHING_ZH = (
    "在以前的对话里没有找到相关内容。你说的话我存下了；没有配置模型，我只能保存和查找消息。"
)
LATEST = "This is the latest that I have stored:"
LATEST_ZH = "我最近存下的是："
POSSIBLE = "I am not sure, but this may be about it:"
POSSIBLE_ZH = "不能确定，可能有关的是："


async def test_request_is_not_answered_as_if_it_were_done(semantic_library: Library) -> None:
    scope = Scope("patient", session_id="before")
    appointment = NewMessage(role=Role.USER, content="My dentist appointment is on Friday.")
    await semantic_library.add_messages(scope, [appointment])
    await semantic_library.vectors.settle()
    quote = f"you said: “{appointment.content}”"
    for number, (text, answer) in enumerate(
        (("forget my dentist appointment", quote), ("2 + 2", NOTHING))
    ):
        session = Scope("patient", session_id=f"now{number}")
        chat = SingleChat(semantic_library, session, options=make_options())
        assert (await chat.answer(text)).text.endswith(answer)


async def test_questions_are_not_quoted(semantic_library: Library) -> None:
    asked = ["What is 7 times 8?", "Is it far?", "What is 2+2?", "remind me what day it is"]
    appointment = NewMessage(role=Role.USER, content="My dentist appointment is on May 4 at 10.")
    scope = Scope("asker", session_id="before")
    await semantic_library.add_messages(scope, [appointment])
    for number, question in enumerate(asked):
        await semantic_library.vectors.settle()
        session = Scope("asker", session_id=f"now{number}")
        chat = SingleChat(semantic_library, session, options=make_options())
        assert (await chat.answer(question)).text == NOTHING


async def test_latest_is_listed_for_what_is_known(semantic_library: Library) -> None:
    scope = Scope("known", session_id="before")
    texts = ["I live in Porto.", "Is it far?", "My dog is called Rex."]
    messages = [
        NewMessage(role=Role.USER, content=text, ts=NOW + timedelta(minutes=number))
        for number, text in enumerate(texts)
    ]
    await semantic_library.add_messages(scope, messages)
    memory = NewMemory(memory_key="mem_1", content="Likes tea.", valid_from=NOW)
    await semantic_library.add_memories(scope, [memory], origin=Origin.USER, actor="x")
    secret = NewMemory(memory_key="mem_2", content="Is ill.", sensitive=True)
    await semantic_library.add_memories(scope, [secret], origin=Origin.USER, actor="x")
    quotes = ["“Likes tea.”", "“My dog is called Rex.”", "“I live in Porto.”"]
    for number, question in enumerate(
        ("What do you know about me?", "what do you know about me", "你知道关于我的什么？")
    ):
        session = Scope("known", session_id=f"now{number}")
        chat = SingleChat(semantic_library, session, options=make_options())
        first, *lines = (await chat.answer(question)).text.splitlines()
        assert first == (LATEST_ZH if number == 2 else LATEST)
        assert [line[line.index("“") :] for line in lines][: len(quotes)] == quotes
    chat = SingleChat(semantic_library, Scope("nobody"), options=make_options())
    assert (await chat.answer("What do you know about me?")).text == NOTHING


async def test_answers_quote_messages(semantic_library: Library) -> None:
    cases: list[tuple[str, str]] = [
        ("我对什么东西过敏来着？", f"2026-03-02 你说过：“{PEANUTS}”"),
        (QUESTION_EN, f"On 2026-03-04 you said: “{LISBON}”"),
        ("你好", "你好！想知道些什么？"),
        ("Hello!", "Hello! What would you like to know?"),
        ("hey, how are you?", "Hello! What would you like to know?"),
        ("早上好！", "你好！想知道些什么？"),
        ("ok thanks", "You are welcome."),
        ("好的，谢谢你！", "不客气。"),
        ("Thanks, bye!", "Goodbye!"),
        ("晚安", "再见！"),
        ("ok", "All right."),
        ("好的", "好的。"),
    ]

    async def check(case: tuple[str, str]) -> None:
        question, answer = case
        scope = LIN.with_session(f"now {question}")  # else the questions would follow each other
        end = await SingleChat(
            semantic_library, scope, options=make_options(), clock=lambda: NOW
        ).answer(question)
        assert answer in end.text.splitlines()
        assert (end.model, end.degraded) == ("memrecall-offline", False)

    await check_each_async(cases, check)


async def test_superseded_statement_is_outdated(semantic_library: Library) -> None:
    """Both lines are shown; only a stored change says that one no longer holds."""
    scope = Scope("mover", session_id="before")
    texts = {"old": "I live in Munich.", "new": "I live in Berlin."}
    messages = [
        NewMessage(role=Role.USER, content=text, message_id=key, ts=NOW - timedelta(days=9 - at))
        for at, (key, text) in enumerate(texts.items())
    ]
    await semantic_library.add_messages(scope, messages)

    async def ask(session: str) -> tuple[dict[str, str], list[str], str]:
        await semantic_library.vectors.settle()
        chat = SingleChat(
            semantic_library,
            Scope("mover", session_id=session),
            options=make_options(),
            clock=lambda: NOW,
        )
        turn = await collect_turn(chat.stream("Where do I live?"))
        (recall,) = turn.recall_answers(forged=True)
        outdated = {
            each["text"]: each["outdated_since"][:10]
            for each in recall["events"]
            if "outdated_since" in each
        }
        return outdated, [each["text"] for each in recall["events"]], turn.final.text

    assert (await ask("first"))[0] == {}
    for key, text in texts.items():
        fields = {"source_message_ids": (key,), "valid_from": NOW - timedelta(days=1)}
        memory = NewMemory(content=text, memory_key=f"mem_{key}", **fields)
        step = PlanStep("UPDATE", memory, "mem_old") if key == "new" else PlanStep("ADD", memory)
        await semantic_library.apply_plan(scope, [step], actor="user")
    outdated, recalled, answer = await ask("second")
    assert set(outdated) <= {texts["old"]}
    assert recalled[0] == texts["new"]
    assert texts["old"] not in answer


async def test_model_judges_whether_anything_is_asked(sqlite_library: Library) -> None:
    """Nothing was found; only the model knows whether it has to say that it does not know."""
    for text, note in (
        ("My dog is called Rex", "If it is asked for, do not guess: say that you do not know"),
        ("Tell me what my cat is called", "If it is asked for, do not guess"),
        ("我的狗叫旺财", "如果被问到，不要猜测：请说不知道"),
        ("我的猫叫什么？", "如果被问到，不要猜测：请说不知道"),
    ):
        chat = SingleChat(sqlite_library, Scope(text), ScriptedClient([say("Hm")]))
        turn = await collect_turn(chat.stream(text))
        (recall,) = turn.recall_answers(forged=True)
        assert note in recall["note"]


async def test_request_without_a_question_is_answered(semantic_library: Library) -> None:
    for code, requests in (
        ("My locker code is 4417.", ("Tell me my locker code", "locker code please")),
        ("我的柜子密码是4417。", ("告诉我我的柜子密码", "柜子密码")),
    ):
        message = NewMessage(role=Role.USER, content=code)
        await semantic_library.add_messages(Scope(code, session_id="before"), [message])
        await semantic_library.vectors.settle()
        for request in requests:
            session = Scope(code, session_id=request)
            chat = SingleChat(semantic_library, session, options=make_options())
            assert f"“{code}”" in (await chat.answer(request)).text


async def test_what_is_hardly_related_is_no_answer(semantic_library: Library) -> None:
    for code, texts, nothing in (
        ("My locker code is 4417.", ("When does my passport expire?", "I moved to Rome"), NOTHING),
        ("我的柜子密码是4417。", ("我的护照什么时候到期？", "我搬到罗马了"), NOTHING_ZH),
    ):
        message = NewMessage(role=Role.USER, content=code)
        await semantic_library.add_messages(Scope(code, session_id="before"), [message])
        await semantic_library.vectors.settle()
        for text in texts:
            session = Scope(code, session_id=text)
            chat = SingleChat(semantic_library, session, options=make_options())
            assert (await chat.answer(text)).text == nothing


def answer_with(certainty: str, score: float, language: Language) -> str:
    """Return the answer to a question whose recall found one message."""
    event = {"time": "2026-03-02", "speaker": "user", "text": "tea", "key": "m", "score": score}
    result = to_json({"events": [event], "confidence": score, "certainty": certainty})
    call = protocol.FunctionCall(id="1", name="recall_memory", arguments='{"query": "drink"}')
    returned = protocol.FunctionExecutionResult(
        content=result, name=call.name, call_id=call.id, is_error=False
    )
    return single_answer(
        language,
        [
            protocol.AssistantMessage(content=[call], source="assistant"),
            protocol.FunctionExecutionResultMessage(content=[returned]),
        ],
    )


def test_what_is_only_possible_is_quoted_as_such() -> None:
    quote, quote_zh = "On 2026-03-02 you said: “tea”", "2026-03-02 你说过：“tea”"
    assert answer_with("sure", 0.9, "en") == quote
    assert answer_with("sure", 0.9, "zh") == quote_zh
    assert answer_with("possible", 0.5, "en") == f"{POSSIBLE}\n{quote}"
    assert answer_with("possible", 0.5, "zh") == f"{POSSIBLE_ZH}\n{quote_zh}"
    assert answer_with("possible", 0.49, "en") == NOTHING
    assert answer_with("possible", 0.49, "zh") == NOTHING_ZH


async def test_greeting_brings_no_weak_matches(semantic_library: Library) -> None:
    """The forced recall is still made, also for a model."""
    scope = Scope("greeter", session_id="before")
    texts = ("Good morning runs are my thing.", "我每天早上好累", "Thanks to Nora I found a flat.")
    messages = [NewMessage(role=Role.USER, content=words) for words in texts]
    await semantic_library.add_messages(scope, messages)
    await semantic_library.vectors.settle()
    greetings = (
        *("Hello!", "Good morning", "hey, how are you?", "Hi there! Good evening.", "ok thanks"),
        *("早上好！", "你好呀，最近怎么样？", "在吗？", "好的，谢谢你！", "大家好"),
    )

    async def check(greeting: str) -> None:
        for client, words in ((None, None), (ScriptedClient([say("Hi")]), "Hi")):
            session = Scope("greeter", session_id=f"{greeting} {client}"[:40])
            chat = SingleChat(semantic_library, session, client, options=make_options())
            turn = await collect_turn(chat.stream(greeting))
            (recall,) = turn.recall_answers(forged=True)
            assert recall["events"] == []
            assert turn.final.text == words if words else "“" not in turn.final.text

    await check_each_async(greetings, check)


async def test_questions_and_empty_answers_are_never_quoted(semantic_library: Library) -> None:
    for language in (("Which bank do I use?", NOTHING), ("我用哪家银行？", NOTHING_ZH)):
        question, nothing = language
        for day in range(3):
            chat = SingleChat(
                semantic_library, Scope("asker", session_id=f"d{day}"), options=make_options()
            )
            assert (await chat.answer(question)).text == nothing


async def test_nothing_is_found_without_evidence(sqlite_library: Library) -> None:
    chat = SingleChat(sqlite_library, Scope("nobody"), options=make_options())
    assert (await chat.answer("What is my passport number?")).text == NOTHING
    assert (await chat.answer("我的护照号是多少？")).text == NOTHING_ZH


async def test_repeated_questions_about_new_messages_are_answered(
    semantic_library: Library,
) -> None:
    chat = SingleChat(semantic_library, Scope("new"), options=make_options())
    await chat.answer("My cat is called Momo.")
    for question in ("What is my cat called?", "What was my cat called?"):
        assert "you said: “My cat is called Momo.”" in (await chat.answer(question)).text


async def test_absent_question_is_not_answered_with_the_topic_before(
    semantic_library: Library,
) -> None:
    lines = (
        *("我在成都上班。", "我妹妹上周搬去了里斯本。", "我开一辆红色的高尔夫。"),
        *("周二九点看牙医。", "我们周五喝汤。", "备用钥匙在老王那里。"),
    )
    messages = [NewMessage(role=Role.USER, content=line) for line in lines]
    await semantic_library.add_messages(Scope("pets", session_id="before"), messages)
    chat = SingleChat(semantic_library, Scope("pets", session_id="now"), options=make_options())
    assert lines[0] in (await chat.answer("我在哪里上班？")).text
    assert lines[0] not in (await chat.answer("我的蜥蜴叫什么名字？")).text
