"""Conversations and the facts that the rules find in them, word for word."""

from .conversations_zh import CHINESE
from .phrases_en import PHRASES_EN
from .phrases_zh import PHRASES_ZH
from .statements_chat import CHAT_EN, CHAT_ZH
from .statements_en_events import EVENTS_EN
from .statements_en_people import PEOPLE_EN
from .statements_en_preferences import PREFERENCES_EN
from .statements_zh import STATEMENTS_ZH
from .transcripts import NOW, Conversation, parse_turns

ENGLISH: list[Conversation] = [
    (
        "en",
        parse_turns("Hi, I'm Anna and I live in Berlin with my husband Tom."),
        ["User is Anna.", "User lives in Berlin with their husband Tom."],
    ),
    (
        "en",
        parse_turns("My name is Li Ming. I'm 34, work as a nurse and have two kids."),
        [
            "User's name is Li Ming.",
            "User is 34 years old.",
            "User works as a nurse.",
            "User has two kids.",
        ],
    ),
    (
        "en",
        parse_turns("I'm allergic to peanuts, so what can I eat?", "assistant| Try rice cakes."),
        ["User is allergic to peanuts."],
    ),
    (
        "en",
        parse_turns(
            "I moved to Lisbon last week and started a new job at Siemens.",
            "assistant| Congratulations! How do you like it?",
            "I love the food but I hate the hills.",
        ),
        [
            "User moved to Lisbon in the week of 2026-03-02.",
            "User started a new job at Siemens.",
            "User loves the food.",
            "User hates the hills.",
        ],
    ),
    (
        "en",
        parse_turns("My sister Clara lives in Oslo. She works as a teacher."),
        ["User's sister Clara lives in Oslo.", "User's sister Clara works as a teacher."],
    ),
    (
        "en",
        parse_turns("My husband's name is Carlos and he's from Mexico City."),
        ["User's husband's name is Carlos.", "User's husband Carlos is from Mexico City."],
    ),
    (
        "en",
        parse_turns(
            "My dentist appointment is on Friday.", "assistant| Noted.", "Actually, it's Thursday."
        ),
        ["User's dentist appointment is on 2026-03-12."],
    ),
    (
        "en",
        parse_turns("I moved to Lyon.", "Sorry, I meant Lille"),
        ["User moved to Lille."],
    ),
    (
        "en",
        parse_turns("Actually my birthday is April 9, not April 8."),
        ["User's birthday is April 9."],
    ),
    ("en", parse_turns("assistant| Where do you live?", "Berlin"), ["User lives in Berlin."]),
    ("en", parse_turns("assistant| What is your name?", "It's Wanda."), ["User's name is Wanda."]),
    (
        "en",
        parse_turns("assistant| Any allergies I should know of?", "Shellfish and kiwi"),
        ["User is allergic to Shellfish and kiwi."],
    ),
    (
        "en",
        parse_turns("assistant| What's your favourite colour?", "Teal"),
        ["User's favourite colour is Teal."],
    ),
    (
        "en",
        parse_turns(
            "Ann| Bob is allergic to nuts.", "Bob| I live in Rome.", "Ann| I love nuts though!"
        ),
        ["Bob is allergic to nuts.", "Bob lives in Rome.", "Ann loves nuts."],
    ),
    (
        "en",
        parse_turns("Ann| You are vegan, right?", "Bob| Yes!", "Ann| My brother Max is vegan too."),
        ["Ann's brother Max is vegan too."],
    ),
    (
        "en",
        parse_turns(
            "Please always answer in Chinese.", "assistant| 好的。", "And keep your answers short."
        ),
        [
            "User wants the assistant to always answer in Chinese.",
            "User wants the assistant to keep its answers short.",
        ],
    ),
    (
        "en",
        parse_turns("From now on, don't use emojis.", "You can call me Jo."),
        [
            "User wants the assistant to not use emojis.",
            "User wants the assistant to call them Jo.",
        ],
    ),
    (
        "en",
        parse_turns("I don't live in Leeds any more, I moved to York."),
        ["User does not live in Leeds any more.", "User moved to York."],
    ),
    (
        "en",
        parse_turns("We broke up, so I'm single now."),
        ["User broke up.", "User is single now."],
    ),
    (
        "en",
        parse_turns("I used to play piano but now I play drums."),
        ["User used to play piano.", "User plays drums."],
    ),
    (
        "en",
        parse_turns(
            "We decided to use PostgreSQL for the billing service.", "The staging port is 5433."
        ),
        [
            "User decided to use PostgreSQL for the billing service.",
            "The staging port is 5433.",
        ],
    ),
    (
        "en",
        parse_turns(
            "Remember that my sister is visiting on the 14th.", "And the door code is 4321."
        ),
        ["User's sister is visiting on 2026-03-14.", "The door code is 4321."],
    ),
    (
        "en",
        parse_turns("I'm Kenji, 41, from Osaka, working as a pastry chef in Lyon."),
        [
            "User is Kenji.",
            "User is 41 years old.",
            "User is from Osaka.",
            "User is working as a pastry chef in Lyon.",
        ],
    ),
    (
        "en",
        parse_turns("I'm a 34-year-old nurse from Leeds."),
        ["User is 34 years old.", "User is a nurse.", "User is from Leeds."],
    ),
    (
        "en",
        parse_turns(
            "My son is six and my daughter is nine.", "My son Leo starts school in September."
        ),
        [
            "User's son is six years old.",
            "User's daughter is nine years old.",
            "User's son Leo starts school in September 2026.",
        ],
    ),
    (
        "en",
        parse_turns(
            "I work at Google as a product manager.", "I got promoted to director yesterday!"
        ),
        [
            "User works at Google.",
            "User works as a product manager.",
            "User got promoted to director on 2026-03-09.",
        ],
    ),
    (
        "en",
        parse_turns(
            "I usually get up at 6 and run 5 km before work.", "On Mondays I work from home."
        ),
        [
            "User usually gets up at 6.",
            "User runs 5 km before work.",
            "User works from home on Mondays.",
        ],
    ),
    (
        "en",
        parse_turns(
            "I can't eat gluten, I have celiac disease.", "Shellfish makes me break out in hives."
        ),
        [
            "User cannot eat gluten.",
            "User has celiac disease.",
            "Shellfish makes User break out in hives.",
        ],
    ),
    (
        "en",
        parse_turns(
            "We're moving to Porto in two months.", "My parents are visiting us next weekend."
        ),
        [
            "User is moving to Porto in May 2026.",
            "User's parents are visiting User on 2026-03-21 to 2026-03-22.",
        ],
    ),
    (
        "en",
        parse_turns("The meeting has been moved to Thursday.", "We cancelled the Greece trip."),
        ["The meeting has been moved to 2026-03-12.", "User cancelled the Greece trip."],
    ),
    (
        "en",
        parse_turns("I booked flights to Lisbon for May 2.", "My passport expires in August."),
        [
            "User booked flights to Lisbon for 2026-05-02.",
            "User's passport expires in August 2026.",
        ],
    ),
    (
        "en",
        parse_turns("I grew up in Nairobi but moved to London when I was twelve."),
        ["User grew up in Nairobi.", "User moved to London when they were twelve."],
    ),
    (
        "en",
        parse_turns("Please forget that I have a dog.", "Forget my old address."),
        ["User has a dog.", "User's old address."],
    ),
    (
        "en",
        parse_turns(
            "Can you help me write an email? I'm applying for a job at Spotify.",
            "assistant| Of course. You have five years of experience, right?",
            "Thanks, I really like it!",
        ),
        ["User is applying for a job at Spotify."],
    ),
    (
        "en",
        parse_turns(
            "I want to learn Spanish.", "I'd love to visit Japan someday.", "I want to know why."
        ),
        ["User wants to learn Spanish.", "User would love to visit Japan someday."],
    ),
]

CONVERSATIONS: list[Conversation] = [*ENGLISH, *CHINESE]
"""What was said, turn by turn, and the texts of its facts in order."""

SINGLE: list[Conversation] = [
    (language, parse_turns(text), facts)
    for language, table in (
        ("en", [*PEOPLE_EN, *PREFERENCES_EN, *EVENTS_EN, *CHAT_EN, *PHRASES_EN]),
        ("zh", [*STATEMENTS_ZH, *CHAT_ZH, *PHRASES_ZH]),
    )
    for text, facts in table
]
"""Single messages."""

__all__ = ["CONVERSATIONS", "NOW", "SINGLE"]
