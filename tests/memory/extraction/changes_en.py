"""Conversations in English about what changes: what is known before, and what afterwards.

Each is (what was said before, what is said now, what is known before, what is known then). A memory
is told by words that it has, with "&" between them; one that may also be missing begins with "?".
"""

Change = tuple[list[str], str, list[str], list[str]]

JOBS_EN: list[Change] = [
    (
        ["I work at Siemens as an engineer."],
        "I left Siemens for Bosch.",
        ["at Siemens", "engineer"],
        ["Bosch", "engineer"],
    ),
    (["I work at Google."], "I got a new job at Apple.", ["Google"], ["Apple"]),
    (["I work at Google."], "I'm now at Meta.", ["Google"], ["Meta"]),
    (["I work for Shell."], "I quit Shell last week.", ["for Shell"], ["quit&Shell"]),
    (["I work at IBM in Zurich."], "I no longer work at IBM.", ["at IBM"], ["no longer&IBM"]),
    (["I work at Novartis."], "I've changed jobs, I work for Roche now.", ["Novartis"], ["Roche"]),
    (["I'm a nurse."], "I retired in January.", ["nurse"], ["retired"]),
    (
        ["I'm a junior developer."],
        "I got promoted to team lead.",
        ["junior developer"],
        ["team lead"],
    ),
    (
        ["I used to work at Nokia."],
        "I joined Ericsson in May 2025.",
        ["Nokia"],
        ["Nokia", "Ericsson"],
    ),
    (["I work at Tesla."], "I start at Rivian next month.", ["Tesla"], ["Tesla", "Rivian"]),
    (
        ["My sister Clara works at Siemens in Munich."],
        "Clara now works at Bosch in Stuttgart.",
        ["Clara&Siemens"],
        ["Clara&Bosch"],
    ),
    (["I work at Lidl."], "I got laid off yesterday.", ["Lidl"], ["?Lidl", "laid off"]),
]
HOMES_EN: list[Change] = [
    (["I live in Rome."], "I moved to Milan last month.", ["Rome"], ["Milan"]),
    (["I live in Rome."], "We relocated from Rome to Lisbon.", ["Rome"], ["Lisbon"]),
    (
        ["I live in Leeds."],
        "I don't live in Leeds anymore.",
        ["lives in Leeds"],
        ["not live in Leeds"],
    ),
    (["I live in Leeds."], "I live in York now.", ["Leeds"], ["York"]),
    (["I'm based in Boston."], "I'm now based in Denver.", ["Boston"], ["Denver"]),
    (["I live in Oslo."], "I'm moving to Bergen in June.", ["Oslo"], ["Oslo", "Bergen"]),
    (
        ["I live with my parents."],
        "I moved out of my parents' place, I live alone now.",
        ["with their parents"],
        ["?moved out", "alone"],
    ),
    (["My brother Tom lives in Kyiv."], "Tom moved to Warsaw.", ["Kyiv"], ["Tom&Warsaw"]),
    (
        ["My address is 5 Elm Street."],
        "My new address is 12 Oak Avenue.",
        ["Elm"],
        ["Oak"],
    ),
]
TASTES_EN: list[Change] = [
    (["I love coffee."], "I no longer drink coffee.", ["loves coffee"], ["no longer&coffee"]),
    (
        ["I love coffee."],
        "I gave up coffee and switched to green tea.",
        ["loves coffee"],
        ["gave up coffee", "green tea"],
    ),
    (["I like beer."], "I don't like beer anymore.", ["likes beer"], ["not like beer"]),
    (
        ["I like horror films."],
        "I used to like horror films.",
        ["likes horror"],
        ["used to&horror"],
    ),
    (["I hate olives."], "I love olives now.", ["hates olives"], ["loves olives"]),
    (["I'm vegan."], "I'm not vegan anymore, I eat fish again.", ["vegan"], ["not vegan", "?fish"]),
    (["I'm vegetarian."], "I went vegan.", ["vegetarian"], ["vegan"]),
    (["I smoke."], "I quit smoking.", [], ["quit smoking"]),
    (
        ["My favourite band is Blur."],
        "My favourite band is Pulp now.",
        ["Blur"],
        ["Pulp"],
    ),
    (
        ["I prefer tea to coffee."],
        "I prefer coffee now.",
        ["prefers tea"],
        ["prefers coffee"],
    ),
    (["I play tennis."], "I stopped playing tennis.", ["plays tennis"], ["stopped&tennis"]),
    (
        ["I like jazz and blues."],
        "I don't like jazz.",
        ["jazz and blues"],
        ["not like jazz", "?blues"],
    ),
]
THINGS_EN: list[Change] = [
    (["I have an iPhone."], "I switched from iPhone to a Pixel.", ["iPhone"], ["Pixel"]),
    (["I use Windows."], "I switched to Linux.", ["Windows"], ["?Windows", "Linux"]),
    (["I drive a Golf."], "I sold the Golf.", ["drives a Golf"], ["sold&Golf"]),
    (["I drive a Golf."], "I drive a Tesla now.", ["Golf"], ["Tesla"]),
    (["I have a dog named Rex."], "Rex died last week.", ["Rex"], ["?Rex", "Rex&died"]),
    (["I have a cat."], "I don't have a cat anymore.", ["has a cat"], ["not have a cat"]),
    (
        ["My phone number is 555-0101."],
        "My new phone number is 555-0199.",
        ["555-0101"],
        ["555-0199"],
    ),
    (
        ["My email is ann@old.example."],
        "My email changed to ann@new.example.",
        ["old.example"],
        ["new.example"],
    ),
    (["I'm dating Mark."], "I broke up with Mark.", ["dating Mark"], ["broke up&Mark"]),
    (["I'm single."], "I got married in May.", ["single"], ["married"]),
    (["I'm married to Leo."], "I got divorced.", ["married to Leo"], ["divorced"]),
    (["I'm married to Leo."], "Leo and I split up.", ["married to Leo"], ["split up"]),
]
PLANS_EN: list[Change] = [
    (
        ["My dentist appointment is on Friday."],
        "My dentist appointment got moved to Monday.",
        ["dentist&2026-03-13"],
        ["dentist&2026-03-16"],
    ),
    (
        ["I have a meeting with Bob on Friday."],
        "The meeting with Bob is cancelled.",
        ["meeting with Bob&2026-03-13"],
        ["cancelled"],
    ),
    (
        ["I'm flying to Tokyo next Friday."],
        "I cancelled my trip to Tokyo.",
        ["flying to Tokyo"],
        ["cancelled&Tokyo"],
    ),
    (
        ["I'm going to Japan in April."],
        "I'm not going to Japan anymore.",
        ["Japan&April"],
        ["not going to Japan"],
    ),
    (["My exam is on Friday."], "Sorry, I meant Thursday.", ["2026-03-13"], ["exam&2026-03-12"]),
    (
        ["I go swimming every Tuesday."],
        "I go swimming on Thursdays now.",
        ["Tuesday"],
        ["Thursdays"],
    ),
    (
        ["I work from home on Mondays."],
        "I don't work from home anymore.",
        ["home&Monday"],
        ["not work from home"],
    ),
    (
        ["The offsite is in Rome on May 4."],
        "The offsite has been moved to May 11.",
        ["offsite&2026-05-04"],
        ["offsite&2026-05-11"],
    ),
    (
        ["We're planning to get a dog."],
        "We decided against getting a dog.",
        ["dog"],
        ["against&dog"],
    ),
]
CORRECTED_EN: list[Change] = [
    (["I live in Lyon."], "No wait, I meant Nice.", ["Lyon"], ["lives in Nice"]),
    (["I'm 34."], "Actually I'm 35.", ["34"], ["35"]),
    (["My name is Jon."], "Actually, it's John.", ["Jon"], ["John"]),
    (["My birthday is June 5."], "Sorry, it's June 15.", ["June 5"], ["June 15"]),
    (
        ["I'm allergic to peanuts."],
        "Actually, I'm not allergic to peanuts.",
        ["is allergic"],
        ["not allergic"],
    ),
    (
        ["I have two kids."],
        "Actually we have three kids now.",
        ["two kids"],
        ["three kids"],
    ),
]
KEPT_EN: list[Change] = [
    (["I live in Rome."], "I live in Rome.", ["Rome"], ["Rome"]),
    (["I like tea."], "I love tea.", ["tea"], ["tea"]),
    (["I work at Siemens."], "Hi! How are you today?", ["Siemens"], ["Siemens"]),
    (["I work at Siemens."], "What if I worked at Bosch?", ["Siemens"], ["Siemens"]),
    (["I like tea."], "I also like coffee.", ["tea"], ["tea", "coffee"]),
    (["Ann| I live in Rome."], "Bob| I moved to Milan.", ["Ann&Rome"], ["Ann&Rome", "Bob&Milan"]),
    (
        ["Ann| I love coffee."],
        "Bob| I gave up coffee.",
        ["Ann&coffee"],
        ["Ann loves coffee", "Bob&coffee"],
    ),
    (
        ["Ann| I work at IBM."],
        "Bob| Ann, I left Shell for BP.",
        ["Ann&IBM"],
        ["Ann&IBM", "Bob&BP"],
    ),
    (
        ["I live in Rome."],
        "My sister moved to Paris.",
        ["Rome"],
        ["User lives in Rome", "sister&Paris"],
    ),
    (["I like coffee."], "I switched seats with Ann.", ["coffee"], ["coffee"]),
    (["I work at IBM."], "I left the office at five.", ["IBM"], ["IBM"]),
    (["I work at IBM."], "I left my keys at home.", ["IBM"], ["IBM"]),
    (["I like coffee."], "I switched to the other tab.", ["coffee"], ["coffee"]),
    (["I like coffee."], "I'm now at the airport.", ["coffee"], ["coffee"]),
]
CHANGES_EN = [
    *JOBS_EN,
    *HOMES_EN,
    *TASTES_EN,
    *THINGS_EN,
    *PLANS_EN,
    *CORRECTED_EN,
    *KEPT_EN,
]
