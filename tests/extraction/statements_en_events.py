"""English messages about plans, decisions and what happened, and the facts in them."""

EVENTS_EN: list[tuple[str, list[str]]] = [
    (
        "I'm flying to Tokyo next Friday at 3pm.",
        ["User is flying to Tokyo on 2026-03-13 at 15:00."],
    ),
    ("I have a dentist appointment tomorrow.", ["User has a dentist appointment on 2026-03-11."]),
    (
        "I'll be in Chicago from the 3rd to the 7th of April.",
        ["User will be in Chicago from 2026-04-03 to 2026-04-07."],
    ),
    (
        "The offsite will be in Lisbon, from 4 to 6 May.",
        ["The offsite will be in Lisbon, from 2026-05-04 to 2026-05-06."],
    ),
    ("I'm in Lisbon, from 4 to 6 May.", []),
    ("I used to live in Paris.", ["User used to live in Paris."]),
    (
        "My flight to Rome is on Sunday evening.",
        ["User's flight to Rome is on 2026-03-15 in the evening."],
    ),
    ("Forget that I live in Paris.", ["User lives in Paris."]),
    (
        "My wife and I are expecting our first child in June.",
        ["User is expecting their first child in June 2026."],
    ),
    ("I graduated from MIT in 2012.", ["User graduated from MIT in 2012."]),
    (
        "We're planning a trip to Japan in April.",
        ["User is planning a trip to Japan in April 2026."],
    ),
    ("remind me to call mom on Friday", ["User wants to be reminded to call mom on 2026-03-13."]),
    ("I broke my leg last month.", ["User broke their leg in February 2026."]),
    ("I bought a Tesla yesterday.", ["User bought a Tesla on 2026-03-09."]),
    ("I'm thinking about getting a dog.", ["User is thinking about getting a dog."]),
    ("I need to finish the report by Friday.", ["User needs to finish the report by 2026-03-13."]),
    ("I'm going to get married in September.", ["User is going to get married in September 2026."]),
    (
        "I'm training for the Berlin marathon in September.",
        ["User is training for the Berlin marathon in September 2026."],
    ),
    ("My car broke down yesterday.", ["User's car broke down on 2026-03-09."]),
    (
        "My doctor's appointment is at 9am on Monday.",
        ["User's doctor's appointment is on 2026-03-16 at 09:00."],
    ),
    ("I cancelled my gym membership.", ["User cancelled their gym membership."]),
    ("I'm not going to Japan anymore.", ["User is not going to Japan anymore."]),
    ("I bought a house in Austin last year.", ["User bought a house in Austin in 2025."]),
    ("I'm getting a new puppy on Saturday.", ["User is getting a new puppy on 2026-03-14."]),
    ("I'm studying for the bar exam.", ["User is studying for the bar exam."]),
    ("Let's go with option B.", ["User decided to go with option B."]),
    ("We agreed to meet on Tuesdays.", ["User agreed to meet on Tuesdays."]),
    ("My goal is to run a marathon this year.", ["User's goal is to run a marathon in 2026."]),
    (
        "My daughter Mia starts kindergarten this September.",
        ["User's daughter Mia starts kindergarten in September 2026."],
    ),
    ("My mum passed away in 2019.", ["User's mum passed away in 2019."]),
    (
        "My best friend is getting married in July and I'm the maid of honour.",
        ["User's best friend is getting married in July 2026.", "User is the maid of honour."],
    ),
    ("I'm trying to cut down on sugar.", ["User is trying to cut down on sugar."]),
    (
        "I hurt my back lifting boxes on Saturday.",
        ["User hurt their back lifting boxes on 2026-03-07."],
    ),
    (
        "I'm saving up for a down payment on a house.",
        ["User is saving up for a down payment on a house."],
    ),
    ("We're thinking of having a second kid.", ["User is thinking of having a second kid."]),
    ("My goal this year is to read 30 books.", ["User's goal in 2026 is to read 30 books."]),
    (
        "I have an interview with Stripe next Tuesday at 10am.",
        ["User has an interview with Stripe on 2026-03-17 at 10:00."],
    ),
    ("The kids' school play is on March 20.", ["The kids' school play is on 2026-03-20."]),
    (
        "I need to renew my driving licence before the end of the month.",
        ["User needs to renew their driving licence before 2026-03-31."],
    ),
    ("The wedding is postponed to next spring.", ["The wedding is postponed to spring 2027."]),
    ("Let's use Postgres for this project.", ["User decided to use Postgres for this project."]),
    (
        "We settled on Tuesday afternoons for the book club.",
        ["User settled on Tuesday afternoons for the book club."],
    ),
    ("I've decided to sell my car.", ["User has decided to sell their car."]),
    (
        "I sold the Honda, I drive a Mazda now.",
        ["User sold the Honda.", "User drives a Mazda now."],
    ),
    ("Delete what I told you about my salary.", ["User's salary."]),
    ("I have a meeting at 3 tomorrow.", ["User has a meeting at 3 on 2026-03-11."]),
    ("I went to Vietnam last winter.", ["User went to Vietnam in winter 2025."]),
    ("I lost my wallet yesterday.", ["User lost their wallet on 2026-03-09."]),
    ("I passed my driving test on Monday!", ["User passed their driving test on 2026-03-09."]),
    (
        "I started learning the cello in January.",
        ["User started learning the cello in January 2026."],
    ),
    ("I'm looking for a new job.", ["User is looking for a new job."]),
    ("I'm turning 40 next month.", ["User is turning 40 in April 2026."]),
    (
        "I'm moving to Denver in August for work.",
        ["User is moving to Denver in August 2026 for work."],
    ),
    ("We're expecting a baby girl in October.", ["User is expecting a baby girl in October 2026."]),
]
