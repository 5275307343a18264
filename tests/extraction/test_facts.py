"""Facts by rules: which messages give facts, and the fields of a fact."""

from collections.abc import Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.extraction import Fact, RuleExtractor, Utterance
from memrecall.extraction.protocol import Extracted
from memrecall.types import Role
from tests.cases import check_each_async

from .conversations import CONVERSATIONS, SINGLE
from .no_facts import MISSED, NO_FACTS
from .transcripts import NOW, Conversation, parse_turns

EXTRACTOR = RuleExtractor()


async def extract(messages: Sequence[Utterance], context: Sequence[Utterance] = ()) -> Extracted:
    return await EXTRACTOR.facts(messages, now=NOW, zone=UTC, context=context)


async def extract_one(*turns: str) -> Fact:
    facts = (await extract(parse_turns(*turns))).facts
    assert len(facts) == 1, facts
    return facts[0]


async def check_facts(case: Conversation) -> None:
    _, messages, facts = case
    assert [fact.text for fact in (await extract(messages)).facts] == facts


def case_name(case: Conversation) -> str:
    return case[1][0].text[:60]


async def test_facts_of_conversations() -> None:
    await check_each_async(CONVERSATIONS, check_facts, case_name)


def test_conversations_cover_both_languages() -> None:
    languages = [language for language, _, _ in CONVERSATIONS]
    assert len(languages) >= 60
    assert languages.count("zh") >= len(languages) // 2


async def test_facts_of_single_messages() -> None:
    await check_each_async(SINGLE, check_facts, case_name)


async def test_messages_without_facts() -> None:
    async def check(reason: str) -> None:
        for message in NO_FACTS[reason]:
            assert (await extract([message])).facts == (), message.text
        assert (await extract(NO_FACTS[reason])).facts == ()

    await check_each_async(NO_FACTS, check)


async def test_missed_facts_are_still_missed() -> None:
    """Move a case to the conversations once the rules find it."""

    async def check(case: tuple[str, str]) -> None:
        text, word = case
        facts = (await extract(parse_turns(text))).facts
        assert not any(word in fact.text for fact in facts), "found now"

    await check_each_async(MISSED, check)


SLOTS: list[tuple[str, str, str | None]] = [
    ("My name is Li Ming.", "user_profile", "name"),
    ("I'm 34.", "user_profile", "age"),
    ("I moved to Berlin.", "user_profile", "home"),
    ("I work as a nurse.", "user_profile", "job"),
    ("I work at Siemens.", "user_profile", "employer"),
    ("I study physics at ETH Zurich.", "user_profile", "school"),
    ("My birthday is June 5.", "user_profile", "birthday"),
    ("I'm vegan.", "user_profile", "diet"),
    ("I'm allergic to nuts.", "user_profile", "allergy"),
    ("I like sushi.", "user_preference", "likes"),
    ("My favourite colour is green.", "user_preference", "favourite_colour"),
    ("I have two kids.", "relationship", "family"),
    ("I have a dog named Rex.", "relationship", "pet"),
    ("My dog is called Rex.", "relationship", "pet"),
    ("I'm married.", "relationship", "marital_status"),
    ("I go swimming every Tuesday.", "habit", None),
    ("I'm flying to Tokyo next Friday.", "plan", None),
    ("I bought a Tesla yesterday.", "event", None),
    ("We decided to use Redis.", "decision", None),
    ("Always answer in Chinese.", "instruction", "reply_language"),
    ("Our staging server runs on port 5433.", "configuration", "staging_server"),
    ("Forget that I live in Paris.", "retraction", "home"),
    ("我叫李明。", "user_profile", "name"),
    ("我今年28岁。", "user_profile", "age"),
    ("我住在上海。", "user_profile", "home"),
    ("我是一名护士。", "user_profile", "job"),
    ("我在腾讯上班。", "user_profile", "employer"),
    ("我在北京大学读书。", "user_profile", "school"),
    ("我的生日是6月5日。", "user_profile", "birthday"),
    ("我吃素。", "user_profile", "diet"),
    ("我对花生过敏。", "user_profile", "allergy"),
    ("我喜欢喝茶。", "user_preference", "likes"),
    ("我有两个孩子。", "relationship", "family"),
    ("我家的猫叫糯米。", "relationship", "pet"),
    ("我单身。", "relationship", "marital_status"),
    ("我每天跑步。", "habit", None),
    ("我下周三去北京出差。", "plan", None),
    ("我昨天买了一辆车。", "event", None),
    ("我们决定用Redis。", "decision", None),
    ("以后都用英文回答。", "instruction", "reply_language"),
    ("数据库端口是5433。", "configuration", "数据库端口"),
    ("忘掉我住在上海这件事。", "retraction", "home"),
]


async def test_fact_has_type_and_slot() -> None:
    async def check(case: tuple[str, str, str | None]) -> None:
        text, kind, field = case
        fact = await extract_one(text)
        assert (fact.memory_type, fact.field) == (kind, field)
        assert fact.subject == "user"

    await check_each_async(SLOTS, check)


DENIALS: list[str] = [
    "I don't eat meat anymore.",
    "I hate mushrooms.",
    "I'm no longer vegan.",
    "I quit smoking two years ago.",
    "I used to live in Paris.",
    "I'm not married.",
    "We cancelled the Greece trip.",
    "我不吃香菜。",
    "我讨厌甜食。",
    "我不再吃素了。",
    "我戒烟了。",
    "我以前住在成都。",
    "我不养狗了。",
]


async def test_denial_is_negated() -> None:
    async def check(text: str) -> None:
        assert (await extract_one(text)).negated

    await check_each_async(DENIALS, check)


@pytest.mark.parametrize("text", ["I like tea.", "I live in Rome.", "我喜欢喝茶。", "我住在上海。"])
async def test_assertion_is_not_negated(text: str) -> None:
    assert not (await extract_one(text)).negated


async def test_fact_has_sources_and_keywords() -> None:
    messages = parse_turns("I live in Berlin.", "assistant| Nice!", "I live in Berlin.")
    (fact,) = (await extract(messages)).facts
    assert fact.source_ids == ("m0", "m2")
    assert "Berlin" in fact.keywords
    assert "User" not in fact.keywords


async def test_correction_has_both_messages_as_sources() -> None:
    assert (await extract_one("My exam is on Friday.", "Actually, it's Monday.")).source_ids == (
        "m0",
        "m1",
    )


async def test_valid_from_of_facts() -> None:
    fact = await extract_one("I moved to Lisbon last week.")
    assert fact.valid_from == datetime(2026, 3, 2, tzinfo=UTC)
    assert (await extract_one("I live in Lisbon.")).valid_from == NOW
    plan = await extract_one("I'm flying to Tokyo next Friday.")
    assert plan.valid_from == NOW  # the plan is valid now, whatever its date
    assert (await extract_one("我上个月搬到深圳了。")).valid_from == datetime(
        2026, 2, 1, tzinfo=UTC
    )


async def test_dates_are_relative_to_message_time_and_zone() -> None:
    sent_at = datetime(2026, 3, 10, 23, 30, tzinfo=UTC)
    messages = [Utterance("m", None, Role.USER, "I bought a bike today.", sent_at)]
    in_shanghai = await EXTRACTOR.facts(messages, now=NOW, zone=ZoneInfo("Asia/Shanghai"))
    assert in_shanghai.facts[0].text == "User bought a bike on 2026-03-11."
    unknown = [Utterance("m", None, Role.USER, "I bought a bike today.")]
    assert (await extract(unknown)).facts[0].text == "User bought a bike on 2026-03-10."


async def test_group_chat_assigns_facts_to_speakers() -> None:
    messages = parse_turns(
        "Ann| I live in Rome.", "Bob| I'm vegan.", "Ann| Bob hates olives.", "Bob| 我养猫。"
    )
    facts = (await extract(messages)).facts
    assert [(fact.subject, fact.source_ids) for fact in facts] == [
        ("Ann", ("m0",)),
        ("Bob", ("m1",)),
        ("Bob", ("m2",)),
        ("Bob", ("m3",)),
    ]
    assert all("User" not in fact.text and "用户" not in fact.text for fact in facts)


async def test_pronouns_refer_to_person_named_by_same_speaker() -> None:
    messages = parse_turns(
        "Ann| My sister Eva lives in Oslo.", "Bob| She works as a nurse.", "Ann| She has a dog."
    )
    texts = [fact.text for fact in (await extract(messages)).facts]
    assert texts == ["Ann's sister Eva lives in Oslo.", "Ann's sister Eva has a dog."]


async def test_context_resolves_answers_and_gives_no_facts() -> None:
    context = parse_turns("My exam is on Friday.", "assistant| Where do you live?")
    assert [fact.text for fact in (await extract(parse_turns("Rome"), context)).facts] == [
        "User lives in Rome."
    ]
    corrected = await extract(parse_turns("Actually, it's Monday."), context[:1])
    assert [fact.text for fact in corrected.facts] == ["User's exam is on 2026-03-16."]


async def test_rules_ignore_prompt() -> None:
    messages = parse_turns("I live in Rome.")
    guided = await EXTRACTOR.facts(messages, now=NOW, zone=UTC, prompt="only food")
    assert guided == await extract(messages)
    assert (guided.by, guided.problem) == ("rules", "")


async def test_third_person_statements_about_user_give_facts() -> None:
    assert (await extract_one("用户喜欢编程")).text == "用户喜欢编程。"
    assert (await extract_one("User likes programming.")).subject == "user"


WORDS = [
    *("I", "we", "my", "you", "if", "not", "live in", "moved to", "Berlin", "love", "hate", "tea"),
    *("on Friday", "yesterday", "called Rex", "and", "but", "she", "always", "```", ">", ".", "?"),
    *("!", ",", "\n", "我", "我们", "不", "住在", "上海", "喜欢", "下周三", "了", "。", "，", "？"),
    *("叫", "李明", "他", "“", "”", "忘掉", "以后"),
]


def utterances() -> st.SearchStrategy[list[Utterance]]:
    words = st.sampled_from(WORDS)
    text = st.one_of(st.text(max_size=60), st.lists(words, max_size=14).map(" ".join))
    role = st.sampled_from(list(Role))
    speaker = st.sampled_from([None, "Ann", "老王"])
    utterance = st.builds(Utterance, st.just("m"), speaker, role, text, st.just(NOW))
    return st.lists(utterance, max_size=4)


@given(utterances())
async def test_facts_of_any_text_are_well_formed(messages: list[Utterance]) -> None:
    result = await extract(messages)
    assert result == await extract(messages)
    for fact in result.facts:
        assert fact.text.strip() == fact.text
        assert len(fact.text) > 1  # one character to forget, and a full stop
        assert "\n" not in fact.text
        assert fact.source_ids == ("m",)
    if not any(item.role in (Role.USER, Role.OTHER) for item in messages):
        assert result.facts == ()


@pytest.mark.parametrize(
    ("day", "date"), [("5th", "2026-04-05"), ("28th", "2026-03-28"), ("31st", "2026-03-31")]
)
async def test_day_of_month_in_plan_is_next_one(day: str, date: str) -> None:
    assert (await extract_one(f"My exam is on the {day}.")).text == f"User's exam is on {date}."


PLAN_DATES: list[tuple[list[str], list[str]]] = [
    (
        ["I fly to Lisbon on 12 December and return on the 19th."],
        ["User flies to Lisbon on 2026-12-12.", "User returns on 2026-12-19."],
    ),
    (
        ["I'm flying to Rome on 30 April.", "I return on the 4th."],
        ["User is flying to Rome on 2026-04-30.", "User returns on 2026-05-04."],
    ),
    (["周四上午九点拔智齿"], ["用户2026年3月12日09:00拔智齿。"]),
    (
        ["11月6号飞曼谷 13号回"],
        ["用户2026年11月6日要去曼谷。", "用户要在2026年11月13日回来。"],
    ),
    (
        ["计划变了 改成7月3号去威海 9号回来"],
        ["用户改成2026年7月3日去威海。", "用户要在2026年7月9日回来。"],
    ),
]


async def test_dates_of_plans_follow_each_other() -> None:
    async def check(case: tuple[list[str], list[str]]) -> None:
        turns, texts = case
        assert [fact.text for fact in (await extract(parse_turns(*turns))).facts] == texts

    await check_each_async(PLAN_DATES, check)


NOT_MEANT = [
    ["I'm basically a vampire."],
    ["I'm Batman."],
    ["I've told you a hundred times that I live in Rome."],
    ["I almost moved to Madrid."],
    ["I'm dating myself here."],
    ["Imagine I'm a pirate. I live on a ship."],
    ["Let's role-play.", "assistant| Sure!", "I'm a pirate and I live on a ship."],
    ["Pretend I'm an astronaut.", "assistant| Do you miss it?", "I'm 81 and I live on a boat."],
    ["我简直是个吸血鬼。"],
    ["我是蝙蝠侠。"],
    ["咱们玩角色扮演吧", "assistant| 好", "我住在月球上，养了六只机器狗。"],
    ["今天累成狗，天天加班到原地去世"],
]


async def test_hyperbole_and_role_play_give_no_facts() -> None:
    async def check(turns: list[str]) -> None:
        assert (await extract(parse_turns(*turns))).facts == ()

    await check_each_async(NOT_MEANT, check)


async def test_facts_are_stored_again_after_role_play() -> None:
    pirate = ("Pretend I'm a pirate.", "I live on a ship.", "ok stop, that was fun")
    assert (await extract_one(*pirate, "I live in Rome.")).text == "User lives in Rome."
    imagined = "Imagine I'm a pirate. I live on a ship."
    assert (await extract_one(imagined, "I live in Rome.")).text == "User lives in Rome."


async def test_actually_introduces_a_fact() -> None:
    fact = await extract_one("Actually I live in Berlin since March.")
    assert (fact.text, fact.field) == ("User lives in Berlin since March.", "home")


# Said in November: what has begun is no plan, unless words or a near month say so.
NOVEMBER = datetime(2026, 11, 16, 12, tzinfo=UTC)
STARTS: list[tuple[str, str, str]] = [
    ("其实我三月起住在杭州", "用户2026年3月起住在杭州。", "user_profile"),
    ("Actually I live in Berlin since March.", "User lives in Berlin since March.", "user_profile"),
    ("我五月开始在华为上班", "用户2026年5月开始在华为上班。", "user_profile"),
    ("我三月以来一直住在杭州", "用户2026年3月以来一直住在杭州。", "user_profile"),
    ("我十二月起住在杭州", "用户2026年12月起住在杭州。", "plan"),
    ("我明年三月起住在杭州", "用户2027年3月起住在杭州。", "plan"),
    ("我打算三月开始学法语", "用户打算2027年3月开始学法语。", "plan"),
    (
        "I have worked at Siemens since December.",
        "User has worked at Siemens since December 2025.",
        "user_profile",
    ),
]


async def test_what_has_begun_is_no_plan() -> None:
    async def check(case: tuple[str, str, str]) -> None:
        words, text, memory_type = case
        messages = parse_turns(words, at=NOVEMBER)
        (fact,) = (await EXTRACTOR.facts(messages, now=NOVEMBER, zone=UTC)).facts
        assert (fact.text, fact.memory_type) == (text, memory_type)

    await check_each_async(STARTS, check)


# A clause without a subject goes on about the person before it, and is not about the speaker.
INHERITED_SUBJECTS: list[tuple[str, list[str]]] = [
    ("我奶奶 83了 血糖一直高", ["用户的奶奶血糖一直高。"]),
    ("我爸糖尿病 打胰岛素", ["用户的爸糖尿病。", "用户的爸打胰岛素。"]),
    ("班里有个小孩 对虾过敏", []),
    ("隔壁老王家闺女考上清华了 学计算机", []),
    ("我们楼下新开了家店 叫拾光 做手冲的", []),
    ("我姐在深圳 姐夫是开出租的 上个月查出脂肪肝", []),
    ("我记得，是在1997年12月20日。", []),
    ("祖籍是安徽寿县，那他毕业于哪里啊？", []),
    ("每天9:00-21:00开放的，你有详细地址吗？", []),
    ("公司其实挺好 准备明年考研", ["用户准备2027年考研。"]),
    ("my son has a new teacher, he's from Malta", []),
]
# Times, lengths of time, pronouns and particles are no objects, and a dose is no predicate.
FRAGMENTS = [
    "戒俩月了",
    "周日不行",
    "我叫它土总",
    "每次0.5g",
    "教资算了",
    "烦透了",
    "喜欢的那个下架了",
    "退了",
    "晚上住江边",
]


async def test_clauses_without_a_subject_go_on_about_the_last_one() -> None:
    async def check(case: tuple[str, list[str]]) -> None:
        text, expected = case
        assert [fact.text for fact in (await extract(parse_turns(text))).facts] == expected

    await check_each_async(INHERITED_SUBJECTS, check)


async def test_fragments_are_no_facts() -> None:
    async def check(text: str) -> None:
        assert (await extract(parse_turns(text))).facts == ()

    await check_each_async(FRAGMENTS, check)


async def test_pronouns_mean_a_person_of_their_gender() -> None:
    niece = "我侄女今年高考 想报护理。我哥常年在安哥拉干工程。"
    facts = (await extract(parse_turns(niece, "她叫林小满"))).facts
    assert [fact.text for fact in facts if "林小满" in fact.text] == ["用户的侄女叫林小满。"]
    facts = (await extract(parse_turns(niece, "我嫂子是会计", "我哥回来了", "她叫林小满"))).facts
    assert not [fact.text for fact in facts if "林小满" in fact.text]  # the niece or her mother
