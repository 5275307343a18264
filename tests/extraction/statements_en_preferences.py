"""English messages about tastes, habits, settings and wishes, and the facts in them."""

PREFERENCES_EN: list[tuple[str, list[str]]] = [
    ("I hate mushrooms but I love sushi.", ["User hates mushrooms.", "User loves sushi."]),
    ("I don't eat meat anymore.", ["User does not eat meat anymore."]),
    ("My favourite colour is green.", ["User's favourite colour is green."]),
    ("Call me Max.", ["User wants the assistant to call them Max."]),
    ("Our staging server runs on port 5433.", ["User's staging server runs on port 5433."]),
    ("Remember that the door code is 4321.", ["The door code is 4321."]),
    (
        "I play the guitar and speak French fluently.",
        ["User plays the guitar.", "User speaks French fluently."],
    ),
    ("I'm not a fan of horror movies.", ["User is not a fan of horror movies."]),
    ("I can't stand coriander.", ["User cannot stand coriander."]),
    ("I quit smoking two years ago.", ["User quit smoking in 2024."]),
    ("I prefer tea over coffee.", ["User prefers tea over coffee."]),
    ("My team uses Jira for tickets.", ["User's team uses Jira for tickets."]),
    ("The production database is on 10.0.0.12.", ["The production database is on 10.0.0.12."]),
    ("I want you to be brutally honest.", ["User wants the assistant to be brutally honest."]),
    ("Keep your answers short.", ["User wants the assistant to keep its answers short."]),
    ("Please don't call me sir again.", ["User wants the assistant to not call them sir again."]),
    ("My laptop runs Fedora 41.", ["User's laptop runs Fedora 41."]),
    (
        "I always run `make check` before I push.",
        ["User always runs `make check` before they push."],
    ),
    ("We use pnpm instead of npm.", ["User uses pnpm instead of npm."]),
    ("The deploy command is `make ship`.", ["The deploy command is `make ship`."]),
    ("I'm a big fan of Arsenal.", ["User is a big fan of Arsenal."]),
    ("I don't like spicy food.", ["User does not like spicy food."]),
    ("I never drink alcohol.", ["User never drinks alcohol."]),
    ("I take metformin every morning.", ["User takes metformin every morning."]),
    (
        "My favorite band is Radiohead and my favorite food is ramen.",
        ["User's favorite band is Radiohead.", "User's favorite food is ramen."],
    ),
    (
        "I go swimming every Tuesday and Thursday.",
        ["User goes swimming every Tuesday and Thursday."],
    ),
    ("Bob hates olives.", ["Bob hates olives."]),
    ("Every Sunday I call my grandma.", ["User calls their grandma every Sunday."]),
    ("I'd rather get emails than calls.", ["User would rather get emails than calls."]),
    (
        "Our cat Luna needs her thyroid pills twice a day.",
        ["User's cat Luna needs her thyroid pills twice a day."],
    ),
    (
        "I don't drink coffee after 2pm because it keeps me awake.",
        ["User does not drink coffee after 2pm."],
    ),
    ("I love hiking, especially in the Dolomites.", ["User loves hiking."]),
    ("I'm really into board games these days.", ["User is really into board games these days."]),
    ("I'm not much of a morning person.", ["User is not much of a morning person."]),
    ("Horror films freak me out.", ["Horror films freak User out."]),
    ("I prefer window seats on flights.", ["User prefers window seats on flights."]),
    ("I'd rather have the meeting by phone.", ["User would rather have the meeting by phone."]),
    ("I always take the train to work.", ["User always takes the train to work."]),
    (
        "Every Friday night we have a family movie night.",
        ["User has a family movie night every Friday night."],
    ),
    ("I usually cook for four people.", ["User usually cooks for four people."]),
    (
        "I go to the gym three times a week, mostly weights.",
        ["User goes to the gym three times a week, mostly weights."],
    ),
    (
        "The Wi-Fi password at the cabin is pinecone77.",
        ["The Wi-Fi password at the cabin is pinecone77."],
    ),
    (
        "Our repo lives at github.com/acme/billing and the main branch is called trunk.",
        ["User's repo lives at github.com/acme/billing.", "The main branch is called trunk."],
    ),
    (
        "I use Arch on my desktop and macOS at work.",
        ["User uses Arch on their desktop and macOS at work."],
    ),
    (
        "The API rate limit is 100 requests per minute.",
        ["The API rate limit is 100 requests per minute."],
    ),
    (
        "I deploy with `fly deploy --remote-only`.",
        ["User deploys with `fly deploy --remote-only`."],
    ),
    (
        "Please keep responses under 100 words.",
        ["User wants the assistant to keep responses under 100 words."],
    ),
    ("Don't give me bullet lists.", ["User wants the assistant to not give them bullet lists."]),
    ("Always show prices in euros.", ["User wants the assistant to always show prices in euros."]),
    (
        "When I ask for recipes, assume metric units.",
        [
            "User wants the assistant to follow this: "
            "When they ask for recipes, assume metric units."
        ],
    ),
    (
        "Speak to me in French from now on.",
        ["User wants the assistant to speak to them in French from now on."],
    ),
    ("I stopped playing guitar.", ["User stopped playing guitar."]),
    ("Note: the boiler was serviced on Feb 12.", ["The boiler was serviced on 2026-02-12."]),
    ("My phone is a Pixel 8.", ["User's phone is a Pixel 8."]),
    ("I support Liverpool.", ["User supports Liverpool."]),
    ("My favourite author is Ursula Le Guin.", ["User's favourite author is Ursula Le Guin."]),
    ("My favorite movie of all time is Alien.", ["User's favorite movie of all time is Alien."]),
    ("I play bass in a band called The Tides.", ["User plays bass in a band called The Tides."]),
    (
        "I volunteer at the food bank on Thursdays.",
        ["User volunteers at the food bank on Thursdays."],
    ),
    ("I hate flying.", ["User hates flying."]),
]
