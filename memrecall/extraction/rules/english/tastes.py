"""Frames of what somebody likes, does regularly, and has."""

from memrecall.extraction.protocol import MemoryType
from memrecall.extraction.rules.english.table import frame
from memrecall.extraction.rules.english.tools import TOOLS
from memrecall.extraction.rules.frames import NOW_OR_BEFORE, PAST, PRESENT

T: MemoryType = "user_preference"
# What was just said or shown is liked in passing: "I love it", "I like your plan".
_PASSING = (
    r"(?!(?:really|definitely|indeed|so|very|also|already|it|this|that|these|those|you"
    r"|your|them|him|her|how|what|the way|when|if|where|to (?:know|ask"
    r"|see|hear|say|thank|add|think|make sure|be clear|point|try|use that|go with))\b)"
)
_THING = rf"(?P<value>{_PASSING}\S.*)"

LIKES = (
    frame(rf"(?:like|love|enjoy|adore|fancy) {_THING}", T, "likes", "likes"),
    frame(rf"prefer {_THING}", T, "prefers", "prefers"),
    frame(r"take (?P<value>my (?:coffee|tea|espresso) .+)", T, "prefers"),
    frame(r"(?:love|like)(?: it)? (?P<value>when (?:people|someone|others) .+)", T, "likes"),
    frame(
        r"(?:hate|dislike)(?: it)? (?P<value>when (?:people|someone|others) .+)",
        T,
        "likes",
        negated=True,
    ),
    frame(
        rf"be (?:\w+ )?(?:into|fond of|keen on|crazy about|obsessed with|passionate about"
        rf"|interested in|addicted to|hooked on|mad about) {_THING}",
        T,
        "likes",
        "likes",
    ),
    frame(rf"be an? (?:\w+ )?(?:fan|lover|supporter) of {_THING}", T, "likes", "likes"),
    frame(
        r"be an? (?:\w+ )?(?P<value>[\w-]+(?: [\w-]+)? (?:fan|lover|addict|enthusiast|nerd"
        r"|geek|buff|supporter))$",
        T,
        "likes",
    ),
    frame(
        r"be (?:much of |more of )?an? (?P<value>(?:morning|night|early|coffee|tea|dog|cat"
        r"|beach|people|city) (?:person|owl|bird)|night owl|early bird|introvert|extrovert"
        r"|foodie|gamer|bookworm|perfectionist|homebody|minimalist)$",
        T,
        "trait",
    ),
    frame(
        rf"(?:hate|dislike|despise|detest|loathe) {_THING}", T, "likes", "dislikes", negated=True
    ),
    frame(
        r"be (?:\w+ )?(?:afraid|scared|terrified|frightened) of (?P<value>(?:flying|driving"
        r"|swimming|dying|public speaking|needles|(?!\w+ing\b)(?!it|that|this|the|you|my|our"
        r"|your)\S+)(?: \S+){0,2})$",
        T,
        "fear",
        "fears",
    ),
    frame(r"have (?P<value>(?:a|an) (?:\w+ )?(?:fear|phobia) of .+)", T, "fear"),
    frame(
        r"(?:get) (?P<value>(?:really |very |easily )?(?:car|sea|motion|air)[ -]?sick\b.*)",
        T,
        "health",
    ),
)
AVOIDED = (
    frame(
        r"(?:go off|be (?:fed up with|sick of|bored (?:of|with)|done with)) "
        r"(?P<value>(?!the\b|to\b|on\b|at\b|with\b|for\b|in\b|and\b|it\b|this\b|that\b|topic\b|my\b"
        r"|you\b)\w+(?: \w+){0,2})$",
        T,
        "likes",
        "dislikes",
        tenses=NOW_OR_BEFORE,
        negated=True,
    ),
    frame(
        r"avoid (?P<value>(?!it\b|that\b|this\b|these\b|those\b).+)",
        T,
        "avoids",
        "avoids",
        negated=True,
    ),
    frame(
        r"(?:stop|quit|give up|cut out) (?P<value>(?:smoking|drinking|eating|coffee|sugar"
        r"|alcohol|meat|caffeine|gaming|vaping|dairy|gluten|\w+ing)\b(?! (?:it|that|this"
        r"|them)\b).*)",
        T,
        "avoids",
        tenses=PAST,
        ended=True,
    ),
    frame(
        r"be (?:off|trying to quit|quitting) (?P<value>(?:coffee|sugar|alcohol|smoking"
        r"|caffeine|gluten|dairy|meat|social media)\b.*)",
        T,
        "avoids",
        negated=True,
    ),
)
DENIED = (
    frame(
        r"(?:do|make) (?P<value>(?:mornings|evenings|weekends|weekdays|(?i:mon|tues|wednes|thurs"
        r"|fri|satur|sun)days|social media|drugs|carbs|caffeine|dairy|spicy)\b.*)",
        T,
        "avoids",
    ),
    frame(r"be to (?P<value>[A-Z].*)", "general", "travel"),
    frame(r"be with (?P<value>[A-Z]\w+)(?: any ?more)?$", "relationship", "partner"),
    frame(
        r"(?:take|put|add) (?P<value>(?:sugar|milk|salt|cream|sweetener)\b.*)",
        T,
        "avoids",
        "avoids",
    ),
    frame(rf"(?:stand|bear|tolerate) {_THING}", T, "likes", "dislikes"),
    frame(
        r"(?:eat|drink|smoke|wear|drive|ride|consume|touch) (?P<value>(?!there|here|that|it|this"
        r"|time|any (?:idea|questions|plans)|a (?:clue|problem))(?:any )?\S.*)",
        T,
        "avoids",
        "avoids",
    ),
    frame(
        r"(?:drink|smoke|drive|cook|swim|eat out)(?P<value>)(?: (?:any ?more|at all))?$",
        T,
        "avoids",
    ),
)
"""What is told by denying it."""

HOBBIES = (
    frame(r"play (?P<value>(?!with|around|along|it|that|a role|a part)\S.*)", T, "hobby", "plays"),
    frame(r"collect (?P<value>.+)", T, "hobby", "collects"),
    frame(
        r"(?:read|watch|listen to) (?P<value>(?:mostly|mainly|a lot of|lots of|tons of|only)"
        r" (?!it|that|this)\S.*|podcasts\b.*|audiobooks\b.*)",
        T,
        "hobby",
    ),
    frame(
        r"(?:watch|listen to|read|play) (?P<value>\S.* (?:religiously|all the time|a lot))$",
        T,
        "hobby",
    ),
    frame(
        r"(?:start|take up|get into|pick up|begin) (?P<value>(?:(?:learning|practi[cs]ing"
        r"|playing|doing|taking) (?!it|that|this|things)\S+|(?:running|swimming|climbing"
        r"|knitting|cycling|painting|yoga|pilates|boxing|karate|judo|crossfit|meditation"
        r"|meditating|journal\w+|gardening|baking|cooking|dancing|fencing|rowing|surfing"
        r"|skiing|skating|photography|pottery|chess|drawing|writing|hiking|lifting|jogging"
        r"|therapy|archery|golf|tennis|sewing|bouldering|calligraphy|woodworking)\b)(?: "
        r"\S+){0,5})$",
        "event",
        "hobby",
        tenses=NOW_OR_BEFORE,
    ),
    frame(
        r"(?:support|root for|follow) (?P<value>(?:the )?(?!I\b)[A-Z].+)", T, "supports", "supports"
    ),
)
OWNED = (
    frame(
        r"(?:keep|store|track|manage|write|host|deploy|run|back up) (?P<what>everything"
        r"|(?:my|our|all my|all our) \S+(?: \S+)?) (?:in|with|on|to)"
        r" (?P<value>[A-Z]\S*)",
        T,
        "uses",
        "uses",
    ),
    frame(
        r"drive (?P<value>(?:an? |the |my )(?!lot\b|bit\b|little\b|long\b|few\b)\S.*|[A-Z]\S*)",
        "general",
        "vehicle",
        "owns",
    ),
    frame(
        r"(?:own|drive|ride) (?P<value>(?!to|past|home|by|there|up|me|us)\S.*)",
        "general",
        "owns",
        "owns",
    ),
    frame(
        r"have (?P<value>(?:an?|two|three|my own) (?:[\w'-]+ ){0,4}?(?i:car|bike|motorcycle"
        r"|scooter|house|flat|apartment|garden|boat|van|truck|laptop|macbook|iphone|ipad"
        r"|phone|camera|piano|guitar|violin|tattoo|blog|youtube channel|podcast|telescope"
        r"|kindle|ps5|xbox|switch|3d printer|balcony|greenhouse|allotment|tesla|drone|synth"
        r"|keyboard|server|nas|raspberry pi)\b.*)",
        "general",
        "owns",
        "owns",
    ),
    frame(
        rf"(?:use|run|work with|write|(?:write|code|program|develop) (?:mostly "
        rf"|mainly |primarily |only )?in) "
        rf"(?P<value>(?:an? )?(?:[A-Z][\w.+#-]*|{TOOLS}\b).*)",
        T,
        "uses",
        "uses",
    ),
    frame(r"use (?P<value>(?:dark|light) mode\b.*)", T, "uses"),
    frame(r"wear (?P<value>(?:an? )?size .+)", "user_profile", "size", tenses=PRESENT),
    frame(
        r"wear (?P<value>(?:glasses|contacts|contact lenses|hearing aids?|braces|dentures)\b.*)",
        "user_profile",
        "health",
        tenses=PRESENT,
    ),
    frame(
        r"(?:run|use|execute|deploy with|build with|test with|release with|back up with) "
        r"(?P<value>.*`[^`]+`.*)",
        "configuration",
        "command",
    ),
)
HABITS = (
    frame(
        r"(?:get up|wake up|go to bed|go to sleep|start work|finish work|leave (?:for )?work"
        r"|sleep|have (?:breakfast|lunch|dinner)) (?P<value>(?:early|late|around|at|before"
        r"|after|between|about|by).+|early|late)$",
        "habit",
        "schedule",
    ),
    frame(
        r"commute (?P<value>(?:by|from|on|an hour|\w+ minutes)\b.*)",
        "habit",
        "commute",
    ),
    frame(r"skip (?P<value>(?:breakfast|lunch|dinner)\b.*)", "habit"),
    frame(
        r"(?:commute|cycle|bike|walk|drive|take the (?:bus|train|metro|subway|tube|tram)) "
        r"(?P<value>to (?:work|school|the office|uni|campus).*)",
        "habit",
        "commute",
    ),
    frame(
        r"take (?P<value>(?:\w+ )*(?:pills?|medication|meds|vitamins?|metformin|insulin"
        r"|ibuprofen|antibiotics|antihistamines?|\d+ ?mg.*))\b.*",
        "user_profile",
        "medication",
    ),
    frame(r"volunteer (?P<value>(?:at|for|with|as) .+)", "habit", None),
)
TASTES = (*LIKES, *AVOIDED, *HOBBIES, *OWNED, *HABITS)
"""All of them, the more telling first."""
