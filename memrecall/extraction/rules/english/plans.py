"""Frames of what somebody will do, did and decided."""

import re

from memrecall.extraction.rules.english.table import frame
from memrecall.extraction.rules.frames import (
    ANY,
    FUTURE,
    NOW_OR_BEFORE,
    PAST,
    PRESENT,
    words,
)

APPOINTMENT = (
    r"(?:appointment|meeting|exam|interview|flight|deadline|presentation|class|surgery|operation"
    r"|check-?up|test|date|wedding|concert|party|reservation|dinner|lunch|call|trip"
    r"|vacation|holiday"
    r"|game|match|race|marathon|hearing|conference|visit|shift|session|lesson|train|bus|ferry|demo"
    r"|review|stand-?up|release|launch|performance|show|gig|recital|defen[cs]e|graduation|ceremony"
    r"|funeral|anniversary|workshop|webinar|retreat|sprint|final|midterm|quiz|rehearsal|viewing"
    r"|haircut|delivery|move|event|festival|tournament|start date|due date|due|tour"
    r"|cruise|hike|scan|off-?site|summit|meet-?up|kick-?off|training|barbecue|bbq|picnic|reunion"
    r"|brunch)"
)
# Wishes that last; "I want to know" and "I want to write a function" are requests.
_GOAL_VERB = (
    r"(?:learn|visit|travel|go (?:to [A-Z]|back|abroad|on)|see [A-Z]|become|be (?:an?"
    r"|able)|move|buy|lose"
    r"|gain|run (?:a|my)|quit|study|start (?:a|an|my|learning|running|working|doing)"
    r"|retire|open|get"
    r" (?:better|fit|in shape|married|a|an|into|my|promoted)|stop|apply|read more|save"
    r"|write (?:a book|a"
    r" novel|my)|build (?:a|my) (?:house|business|company|cabin)|own|adopt|have (?:kids|children|a"
    r" (?:dog|cat|family))|publish|pass|graduate|climb|hike|swim|improve|switch|change "
    r"(?:jobs?|careers?)"
    r"|live|eat (?:less|more|healthier)|drink less|sleep more|exercise|work (?:in|at|as"
    r"|abroad)|train"
    r"|teach|finish|renovate|spend more)\b"
)
_MILESTONE = (
    r"(?:graduate|buy|sell|win|lose|finish|complete|start|quit|adopt|visit|travel|break|marry"
    r"|move|join|launch|ship|sign|book|order|pass|fail|attend|return|publish|release|retire"
    r"|run(?= .*\b(?:marathons?|race|half|10k|5k|km|miles)\b)"
    r"|celebrate|get (?:married|engaged|divorced|promoted|hired|fired|accepted|into|a new"
    r"|my|back|vaccinated"
    r"|a (?:promotion|raise|job|tattoo|dog|cat|scholarship|degree|driver))|have "
    r"(?:surgery|a baby|an accident"
    r"|an operation)|give birth|be (?:accepted|admitted|promoted|diagnosed"
    r"|hospitali[sz]ed|born|hired|robbed)"
    r"|migrate|deploy|upgrade|switch|install|renovate|paint|plant|build|injure|hurt"
    r"|sprain|fracture|twist"
    r"|apply|register|enroll|sign up|reserve|rent|lease|donate|earn|found|set up|create"
    r"|crash|repair|replace|postpone|reschedule|cancel|schedule)\b"
)

PLANS = (
    frame(
        r"(?:plan|intend|aim|mean|hope|expect|be planning|be hoping|be about|be meant|be supposed"
        r"|be scheduled|be due) to (?P<value>(?!see if|know|hear|get (?:this|it)|find out"
        r"|understand)\S.*)",
        "plan",
        tenses=PRESENT,
    ),
    frame(
        r"plan (?:on )?(?P<value>(?:\w+ing\b|a |an |my |our |the |to )\S*.*)",
        "plan",
        tenses=PRESENT,
    ),
    frame(
        rf"(?:want|wish|dream) (?:of |about )?(?:to )?(?P<value>{_GOAL_VERB}.*|\w+ing .+)",
        "plan",
        "goal",
        tenses=NOW_OR_BEFORE,
    ),
    frame(
        rf"try to (?P<value>(?:cut (?:down|back|out)|reduce|limit|be more|eat|drink (?:less"
        rf"|more)|sleep|get|stay|{_GOAL_VERB}).*)",
        "plan",
        "goal",
    ),
    frame(
        r"(?:think (?:of|about)|consider|look into|look forward to) (?P<value>(?:\w+ing"
        r"|getting|a|an) .+)",
        "plan",
    ),
    frame(
        r"(?:train|prepare|study|save(?: up)?|practice|practise|rehearse) for (?P<value>(?:my"
        r"|a|an|the|our|[A-Z0-9]).+)",
        "plan",
    ),
    frame(r"apply (?:for|to) (?P<value>.+)", "plan"),
    frame(r"(?:move|relocate) (?:back )?(?:to|in with|into|out of) (?P<value>.+)", "plan"),
    frame(
        r"look for (?P<value>(?:an? )?(?:new )?(?:job|apartment|flat|house|roommate|car"
        r"|school|therapist|internship|place to live|nanny|home)\b.*)",
        "plan",
    ),
    frame(
        rf"have (?P<value>(?:an?|my|the|our|another|two|three) (?:[\w'-]+ "
        rf"){{0,5}}?{APPOINTMENT}\b.*)",
        "plan",
        timed=True,
    ),
    frame(
        r"stay (?P<value>(?:with|at|in) .+ (?:until|till|through) .+)", "plan", tenses=NOW_OR_BEFORE
    ),
    frame(r"have (?P<value>(?:\w+ )?tickets? (?:for|to) .+)", "plan"),
    frame(
        r"be (?P<value>(?:off(?: work)?|away|abroad|travell?ing|out of (?:town|the office"
        r"|the country|office)|on (?:vacation|holiday|leave|a trip|a business trip|call))\b.*)",
        "plan",
        timed=True,
    ),
    frame(r"be (?P<value>due (?:in|on|around|at the) .+)", "plan", timed=True),
    frame(r"(?:need|have|must|be supposed) to (?P<value>.+)", "plan", timed=True),
    frame(r"(?:wait for|be waiting (?:for|on)) (?P<value>.+)", "plan", timed=True),
)
WISHES = (
    frame(rf"(?:love|like|be happy|prefer) to (?P<value>{_GOAL_VERB}.*)", "plan", "goal"),
    frame(r"rather (?P<value>.+)", "user_preference", "prefers"),
    frame(
        r"prefer (?P<value>(?!to\b|the\b|that\b|this\b|these\b|those\b|it\b|an?\b|if\b|not\b"
        r"|you\b|something\b|one\b)\S.*)",
        "user_preference",
        "prefers",
    ),
)
"""What somebody would love to do."""

DECISIONS = (
    frame(
        r"(?:decide|agree|choose|commit|vote|resolve) (?:to|on|that|against|not to) (?P<value>.+)",
        "decision",
        tenses=NOW_OR_BEFORE,
    ),
    frame(
        r"end up (?P<value>(?:choosing|going (?:with|for)|picking|buying|using(?! too)|taking"
        r"|staying with) (?!it|that|this|you|them)\S.*)",
        "decision",
        tenses=PAST,
    ),
    frame(
        r"(?:settle on|opt for|go with|stick with|pick|choose|select|standardi[sz]e on) "
        r"(?P<value>(?!it|that|this|you|them|up)\S.*)",
        "decision",
        tenses=ANY,
    ),
    frame(
        r"(?:switch|change|migrate)(?: over)?(?: from .+?)? to "
        r"(?P<value>(?!(?:the|an?) (?:other|next|previous|last|first|second|different)\b|another\b"
        r"|it\b|that\b|this\b|you\b|plan [bB]\b).+)",
        "decision",
        tenses=ANY,
    ),
    frame(
        r"(?:leave (?P<old>[A-Z0-9][\w&.'-]*(?: [A-Z0-9][\w&.'-]*){0,3}) (?:for|to join)"
        r"|(?:swap|trade|trade in|ditch|replace) (?:my|our|the) .+? (?:for|with)) "
        r"(?P<value>(?:an? |the |my )?[A-Z0-9](?!.*\b(?:day|week|month|year|holiday|trip)s?\b).*)",
        "event",
        tenses=PAST,
    ),
)
LEFT = (
    frame(
        r"leave (?P<value>[A-Z][\w&.'-]*(?: [A-Z][\w&.'-]*){0,2})$",
        "event",
        tenses=PAST,
        ended=True,
    ),
)
"""Whatever it was, a firm or a city: what is known tells."""

CANCELLED = (
    frame(
        r"(?:cancel|call off|drop|skip|give up on) (?P<value>(?:my|our|the|that) .+)",
        "plan",
        tenses=NOW_OR_BEFORE,
        ended=True,
    ),
    frame(r"be (?:cancel\w*|called off)(?P<value>.*)", "plan", tenses=ANY, ended=True),
)
SCHEDULED = (
    frame(r"be (?:on|at|from|in)(?: (?:the )?)(?P<value>.*)", "plan", tenses=ANY, timed=True),
    frame(
        r"(?:be|get) (?:(?:re)?scheduled|postponed|moved|delayed|pushed(?: back)?|brought forward"
        r"|set|planned|booked|now|due)?(?: (?:for|to|on|at|until|back to))?(?P<value>.*)",
        "plan",
        tenses=ANY,
        timed=True,
    ),
    frame(
        r"(?:start|begin|end|arrive|leave|depart|take place|open|close|expire|land|run out"
        r"|run|happen|renew)(?P<value>.*)",
        "plan",
        tenses=ANY,
        timed=True,
    ),
)
EVENTS = (
    frame(
        rf"(?P<value>{_MILESTONE} (?!it\b|that\b|this\b|them\b|you\b|(?:seats|places|sides|tabs"
        rf"|to the (?:other|next|previous)|to plan)\b)\S.*)",
        "event",
        tenses=PAST,
    ),
    frame(
        r"(?P<value>(?!say|tell|ask|think|feel|mean|hear|see that|know|understand|mention"
        r"|have (?:a|such|an?) (?:\w+ )?(?:time|chat|day|talk|conversation|feeling"
        r"|question)\b|be (?!in\b|at\b|on\b|to\b))\w+ (?!it\b|that\b|this\b|them\b|him\b"
        r"|her\b)\S.*)",
        "event",
        tenses=PAST,
        timed=True,
    ),
)
FUTURE_STEPS = (
    frame(
        r"(?P<value>(?!let you|tell you|try (?:it|that|this)|check|see|look|think about it"
        r"|take (?:it|that)|ask|need|be (?:back|there|fine|ok|right)|do (?:it|that)|keep that"
        r"|read|say|have to go|go now|come back to you|\w+ .*\bnow$)\w+ .+)",
        "plan",
        tenses=FUTURE,
    ),
)
STEPS_WITH_TIME = (frame(r"(?P<value>\w+ .+)", "plan"),)
"""What is told in the progressive with a time to come: "I am flying to Rome on Friday"."""

TIMETABLE = (
    frame(
        r"(?P<value>(?:start|begin|close on|leave|arrive|fly|graduate|turn|finish|return|come|go"
        r"|retire|move|open|end)\b.+)",
        "plan",
    ),
)
"""What is told in the present with a time to come: "she starts school in September"."""

HABIT_ADVERBS = words(
    "hardly seldom always usually often never sometimes normally typically generally "
    "rarely regularly frequently"
)
HABIT_TIME = re.compile(
    r"\b(?:every|each) (?:other |single )?(?:day|morning|night|evening|afternoon|week"
    r"|month|year|weekend"
    r"|\w+day|spring|summer|autumn|fall|winter|\d+ \w+|few \w+|hour|time)\b"
    r"|\b(?:on|at) (?:(?:mon|tues|wednes|thurs|fri|satur|sun)days|weekends|weekdays"
    r"|weeknights|nights)\b"
    r"|\b(?:once|twice|three times|four times|five times|\d+ times|a few times|several "
    r"times) (?:a|per|each|every) \w+"
    r"|\bin the (?:morning|evening|afternoon)s?\b|\b(?:daily|weekly|monthly|nightly)\b"
    r"|\b(?:now and then|from time to time|once in a while)\b"
    r"|\bbefore (?:bed|work|breakfast)\b|\bafter (?:work|dinner|lunch|school)\b",
    re.IGNORECASE,
)
