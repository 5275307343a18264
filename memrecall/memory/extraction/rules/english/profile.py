"""Frames of who somebody is: name, age, home, work, school, family, health, languages."""

import re

from memrecall.memory.extraction.facts import EntityType, MemoryType
from memrecall.memory.extraction.rules.english.kinship import PET_WORD, RELATION_OF
from memrecall.memory.extraction.rules.frames import (
    ANY,
    NOW_OR_BEFORE,
    PAST,
    PRESENT,
    Frame,
    Tense,
)

NUMBER = r"(?:\d{1,3}|one|two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|thirty)"
NAME = r"[A-Z][\w'’-]*(?: (?:[A-Z][\w'’.-]*|de|van|von|da|bin|al))*"
_JOBS = r"""
\w*(?:eer|ologist|smith|keeper|worker|maker|writer|teacher|driver|trainer|manager|designer|painter
|developer|programmer|planner|officer|dancer|singer|photographer|librarian|technician|musician
|electrician|physician|politician|magician|therapist|scientist|pharmacist|journalist|artist|dentist
|economist|analyst|specialist|strategist|stylist|pianist|chemist|florist|accountant|consultant
|assistant|attendant|architect|tutor|doctor|actor|director|editor|author|investor|contractor
|professor|translator|surgeon|ographer|grapher|baker|butcher|barber|lawyer|broker|banker|farmer
|owner|founder|leader|coach|advocate|nurse|chef|cook|pilot|clerk|cashier|waiter|waitress|barista
|bartender|plumber|carpenter|mechanic|welder|paramedic|firefighter|soldier|sailor|judge|solicitor
|barrister|notary|midwife|vet|veterinarian|receptionist|secretary|intern|student|freelancer
|entrepreneur|ceo|cto|researcher|retiree|pensioner|gardener|hairdresser|tailor|jeweller|model|nanny
|guide|instructor|lecturer|recruiter|realtor|guard|detective|producer|composer|postdoc|apprentice
|optician|optometrist|actuary|auditor|admin|administrator|undergrad|undergraduate|postgrad|teller
|sculptor|illustrator|animator|tester|operator|reporter|biologist)
|nurse|chef|cook|pilot|vet|model|intern|student|doctor|teacher|lawyer|judge|actor|baker|banker|ceo
|cto|tutor|coach|author|editor|farmer|guide|soldier|nanny|tailor|barber|clerk|driver|owner|founder
|writer|artist|dancer|singer|painter|engineer|waiter|welder|sailor|broker|plumber|dentist|surgeon
"""
_JOB = "(?:" + "".join(_JOBS.split()) + ")s?"
_NATIONS = (
    r"(?:[A-Z]\w+(?:ese|ish|ian|ean|can|man|ard|uayan|aiian|isian|wegian)|French|Dutch|Greek|Thai"
    r"|Swiss|Czech|Iraqi|Israeli|Pakistani|Korean|Danish|Irish|Welsh|Scottish|British|Spanish|Turkish"
    r"|Finnish|Swedish|Polish|Chinese|Japanese|American|Indian|German|Catalan|Uzbek|Kazakh|Slovak"
    r"|Slovene|Croat|Serb|Afghan|Filipino|Nepali|Bengali|Emirati)"
)
_SCHOOL = r"(?:[A-Z][\w&.'-]*(?: [A-Z][\w&.'-]*| of| for| and| the)* ?)?(?:university|college|school|institute|academy|[A-Z]{2,}|[A-Z][a-z]+)"
DIETS = (
    r"vegan|vegetarian|pescatarian|pescetarian|flexitarian|omnivore|c(?:o)?eliac|lactose[- ]intolerant"
    r"|gluten[- ](?:intolerant|free)|diabetic|kosher|halal|keto|paleo|low[- ]carb|dairy[- ]free"
    r"|plant[- ]based|raw food|sugar[- ]free|low[- ]sodium|low[- ]fodmap|intermittent fasting"
    r"|mediterranean|sober|teetotal(?:ler|er)?"
)
_ILLS = (
    r"asthma|diabetes|migraines?|adhd|add|autism|insomnia|anxiety|depression|arthritis|eczema|epilepsy"
    r"|hypertension|high blood pressure|low blood pressure|celiac disease|coeliac disease|ibs|lupus"
    r"|anemia|anaemia|scoliosis|tinnitus|dyslexia|hay fever|heart condition|bad knees?|bad back"
    r"|astigmatism|gerd|endometriosis|sciatica|hypothyroidism|chronic \w+|sleep apnea|cancer"
    r"|a (?:bad|weak|sore) (?:knee|back|shoulder|heart)|a pacemaker"
)


_FAMILY = "|".join(
    word for word, relation in RELATION_OF.items() if relation not in ("treated_by", "taught_by")
)


def frame(
    pattern: str,
    memory_type: MemoryType,
    field: str | None = None,
    relation: str | None = None,
    kind: EntityType = "thing",
    *,
    tenses: frozenset[Tense] = PRESENT,
    **more: bool | str,
) -> Frame:
    """A frame of predicates that begin like this; capitals count only in names."""
    return Frame(
        re.compile(pattern), memory_type, field, relation, kind, tenses=tenses, **more  # type: ignore[arg-type]
    )


P: MemoryType = "user_profile"
R: MemoryType = "relationship"

NAMES = (
    frame(rf"go by (?P<value>{NAME})", P, "nickname"),
    frame(rf"be (?:called|known as) (?P<value>{NAME})", P, "name", whom="anybody"),
    frame(rf"be named (?P<value>{NAME})", P, "name"),
)
SELF_NAME = (
    frame(rf"be (?P<value>(?!{_NATIONS}\b|(?i:{DIETS})\b)[A-Z][a-z'’-]+(?: [A-Z][\w'’.-]*){{0,2}})$", P, "name", whom="speaker"),
)
"""\"I am Anna\": whoever says it of another tells what he is, not his name."""

AGES = (
    frame(rf"be (?:almost |nearly |about )?(?P<value>{NUMBER})(?: years? old| years? of age| y/?o)?$", P, "age"),
    frame(rf"be (?P<value>{NUMBER}) (?:years?|months?|weeks?) old", P, "age"),
    frame(rf"turn (?P<value>{NUMBER})\b", P, "age", tenses=ANY),
    frame(r"be born (?:and raised )?in (?P<value>(?!\d)[A-Z].*)", P, "birthplace", "born_in", "place", tenses=PAST),
    frame(r"be born (?:on|in) (?P<value>.*\d.*)", P, "birthday", tenses=PAST),
)
HOMES = (
    frame(r"live (?:together )?(?:in|at|on|near|outside(?: of)?|close to|just outside) (?P<value>(?!the moment|fear|peace)\S.*)", P, "home", "lives_in", "place"),
    frame(r"(?:be (?:currently )?based|reside|be located|be staying permanently) (?:in|at|near) (?P<value>.+)", P, "home", "lives_in", "place"),
    frame(r"(?:move|relocate|emigrate|immigrate)(?: back| over| house| home)?(?: from .+?)? (?:in )?(?:to|into) (?P<value>.+)", P, "home", "lives_in", "place", tenses=PAST),
    frame(r"(?:settle(?: down)?) in (?P<value>.+)", P, "home", "lives_in", "place", tenses=PAST),
    frame(r"live (?P<value>alone|by myself|on my own|abroad|with .+)", P, "household"),
    frame(r"(?:be (?:originally )?from|come from|hail from) (?P<value>(?!now|then|home|work|today|the (?:start|beginning|team|same)|scratch|my|our|your)\S.*)", P, "origin", "from", "place"),
    frame(r"grow up (?:in|on|near) (?P<value>.+)", P, "origin", "grew_up_in", "place", tenses=PAST),
    frame(rf"be (?:half[- ]|originally )?(?P<value>{_NATIONS})(?:$|[ ,](?:but|and|by|living))", P, "nationality"),
    frame(r"live (?:in|at|near|with) (?P<value>.+)", "event", None, tenses=PAST),
)
WORK = (
    frame(r"work (?:\w+[- ]time )?(?:as|like) (?:an? |the )?(?P<value>.+)", P, "job", "works_as", "field"),
    frame(r"work (?:\w+[- ]time |remotely |mostly )*(?:at|for) (?P<value>(?!home|night|least|the moment|free|myself|\d)\S.*)", P, "employer", "works_at", "organization"),
    frame(r"work in (?P<value>(?!progress)\S.*)", P, "job", "works_in", "field"),
    frame(r"work (?P<value>from home|remotely|night shifts?|nights|part[- ]time|full[- ]time|freelance|for myself|shifts?|weekends?|the night shift)", P, "work_style"),
    frame(r"(?:be employed|be working) (?:at|by|with|for) (?P<value>.+)", P, "employer", "works_at", "organization"),
    frame(r"run (?P<value>(?:a|an|my own|our own|the) (?:[\w-]+ )*(?:business|company|shop|store|bakery|cafe|café|restaurant|startup|studio|farm|blog|channel|podcast|agency|clinic|hotel|bar|salon|gym).*)", P, "job"),
    frame(r"(?:join|start (?:working )?(?:at|for)|start (?:a|my) (?:new )?(?:job|position|role) (?:at|with)|get (?:a|the) (?:new )?job (?:at|with)|be hired by|switch jobs? to|get hired (?:at|by)) (?P<value>[A-Z].+)", P, "employer", "works_at", "organization", tenses=PAST),
    frame(r"(?:start|get|land|find|accept) (?P<value>(?:a|my|an) (?:new )?(?:job|position|role)(?: .*)?)", "event", "job", tenses=PAST),
    frame(r"(?:get|be) promoted to (?P<value>.+)", P, "job", "works_as", "field", tenses=PAST),
    frame(r"(?:quit|leave|resign from|lose) (?P<value>(?:my|the) (?:old )?(?:job|position|company|role)\b.*)", "event", "job", tenses=PAST, ended=True),
    frame(r"(?:be|get) (?P<value>laid off|fired|made redundant)", "event", "job", tenses=NOW_OR_BEFORE, ended=True),
    frame(r"(?:be )?(?P<value>retired?|unemployed|self[- ]employed|between jobs|on (?:maternity|paternity|parental|sick) leave|on sabbatical)\b", P, "job", tenses=NOW_OR_BEFORE),
    frame(rf"be (?:an? |the (?=[\w -]+ (?:at|of) [A-Z]))?(?P<value>(?:[\w/-]+ ){{0,4}}?{_JOB}(?:,? (?:at|for|in|with|on|of|and|mostly|mainly|specialis\w+|specializ\w+) (?!this|that|the (?:day|trip|team))\S.*)?)$", P, "job", "works_as", "field"),
    frame(r"(?:teach|coach|tutor) (?P<value>(?!me|you|us|him|her|them|it|that)\S.*)", P, "job"),
)
SCHOOL = (
    frame(rf"study (?P<field>(?!abroad|hard|for|at|in)[\w &/-]+?) (?:at|in) (?P<value>(?:the )?{_SCHOOL}.*)", P, "school", "studies_at", "organization"),
    frame(rf"study (?:at|in) (?P<value>(?:the )?{_SCHOOL}.*)", P, "school", "studies_at", "organization"),
    frame(rf"(?:attend|go to|enroll(?: at| in)|be enrolled (?:at|in)|be (?:studying )?at) (?P<value>(?:the )?(?:[A-Z][\w&.'-]*(?: of| for)? ?)*(?:[Uu]niversity|[Cc]ollege|[Ss]chool|[Ii]nstitute|[Aa]cademy|MIT|UCLA|NYU|ETH|UCL|LSE)\b.*)", P, "school", "studies_at", "organization"),
    frame(r"study (?P<value>(?!hard|a lot|for |at |in |late|all|more|every|tonight|tomorrow|together)[\w &/-]+.*)", P, "major", "studies", "field"),
    frame(r"(?:major|minor|specialise|specialize) in (?P<value>.+)", P, "major", "studies", "field", tenses=NOW_OR_BEFORE),
    frame(r"have (?P<value>(?:an?|my|two) (?:[\w'-]+ )?(?:degree|phd|master'?s|bachelor'?s|mba|diploma|licen[cs]e|certificate|pilot'?s licen[cs]e) ?(?:in|from|of|as)?\b.*)", P, "education"),
    frame(r"graduate (?:from|in|with) (?P<value>.+)", "event", "education", "graduated_from", "organization", tenses=PAST),
    frame(r"(?:do|pursue|finish|work on|write|complete|start) (?:my|a|an) (?P<value>(?:phd|ph\.d\.?|doctorate|master'?s?|mba|bachelor'?s?|degree|thesis|dissertation|internship|apprenticeship|residency)\b.*)", P, "school", tenses=NOW_OR_BEFORE),
    frame(rf"be (?:in (?:my )?|a )?(?P<value>(?:first|second|third|fourth|final|1st|2nd|3rd|4th|last|freshman|sophomore|junior|senior)[- ]year\b.*|(?:\d{{1,2}}(?:th|st|nd|rd)|first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth) (?:grade|grader|year)\b.*)", P, "school"),
)
FAMILY = (
    frame(rf"have (?P<value>(?:an?|no|any|{NUMBER}|some|several|twin) (?:[\w-]+ ){{0,4}}?(?:{_FAMILY})(?=$|[,;]| (?:named|called|who|and|in|from|at|with|aged|now|together|living|that|on|whose|\()\b).*)", R, "family"),
    frame(rf"have (?P<value>(?:twins|kids|children|siblings|no (?:kids|children|siblings))\b.*)", R, "family"),
    frame(rf"be (?P<value>(?:an? |the )?(?:[\w-]+ ){{0,3}}(?:mother|father|mom|mum|dad|parent|grandmother|grandfather|only child|twin|widow|widower|stepmom|stepdad)\b(?: (?:of|to|with) .+)?)$", R, "family"),
    frame(r"be engaged to (?P<value>.+)", R, "marital_status", "engaged_to", "person"),
    frame(r"(?:be|get|have been) (?:happily )?married to (?P<value>.+)", R, "marital_status", "married_to", "person", tenses=NOW_OR_BEFORE),
    frame(r"marry (?P<value>.+)", R, "marital_status", "married_to", "person", tenses=PAST),
    frame(r"(?:be|get) (?P<value>(?:happily |newly |recently )?(?:married|single|divorced|engaged|widowed|separated)\b.*)", R, "marital_status", tenses=NOW_OR_BEFORE),
    frame(r"(?:be dating|date|be seeing|be engaged to) (?P<value>(?!back|from)\S.*)", R, "partner", "partner_of", "person"),
    frame(r"(?P<value>(?:break up|split up) with .+)", R, "partner", tenses=PAST, ended=True),
    frame(r"be (?P<value>(?:\w+ (?:weeks?|months?) )?(?:pregnant|expecting)\b.*)", R, "family"),
)
PETS = (
    frame(rf"have (?P<value>(?:an?|{NUMBER}|some|several|no) (?:[\w-]+,? ){{0,4}}?(?:{PET_WORD})\b.*)", R, "pet", "owns", "animal"),
    frame(rf"(?:adopt|get|foster|rescue|buy) (?P<value>(?:an?|{NUMBER}) (?:[\w-]+,? ){{0,4}}?(?:{PET_WORD})\b.*)", R, "pet", "owns", "animal", tenses=PAST),
)
HEALTH = (
    frame(r"be (?:\w+ly |very |deathly |super )*allergic to (?P<value>.+)", P, "allergy", "allergic_to"),
    frame(r"have (?P<value>(?:an? )?(?:[\w-]+ ){0,2}(?:allergy|allergies|intolerance)\b.*)", P, "allergy"),
    frame(rf"(?:be|go|turn|become) (?:an? |strictly |fully )?(?P<value>(?:strict |lifelong )?(?:{DIETS}))\b", P, "diet", tenses=ANY),
    frame(rf"(?:follow|be on|eat|keep|try|do|stick to|start) (?:an? |the )?(?P<value>(?:strict )?(?:(?:{DIETS})(?: diet)?$|(?:{DIETS}) |[\w-]+ diet\b).*)", P, "diet", tenses=NOW_OR_BEFORE),
    frame(rf"(?:have|suffer from|be diagnosed with|get diagnosed with|live with) (?P<value>(?:(?:mild|severe|type \w+|chronic|terrible|bad|seasonal) )*(?:{_ILLS})\b.*)", P, "health", tenses=NOW_OR_BEFORE),
    frame(r"be on (?P<value>(?:the |my |some )?(?:blood thinners?|antibiotics|medication|meds|insulin|the pill|antidepressants|statins|steroids|beta blockers|painkillers|birth control|crutches)\b.*)", P, "medication"),
    frame(r"get (?P<value>(?:an? |really |bad |terrible )*(?:migraines?|headaches?|hives|rash|heartburn|nosebleeds|panic attacks|acid reflux|sick|car ?sick|sea ?sick|motion sick|cold sores|allergies)(?: (?:from|when|if|after|on|in|every)\b.*)?)$", P, "health"),
    frame(r"be (?P<value>(?:\w+ )?(?:weeks?|months?) (?:post-?op|pregnant|sober|into recovery)\b.*|recovering from .+|in remission\b.*|disabled|in a wheelchair|hard of hearing)", P, "health"),
    frame(r"be (?:diagnosed with|prescribed) (?P<value>.+)", P, "health", tenses=NOW_OR_BEFORE),
    frame(r"be (?P<value>left[- ]handed|right[- ]handed|colou?r[- ]?blind|dyslexic|autistic|deaf|blind|short[- ]sighted|near[- ]?sighted)\b", P, "health"),
    frame(r"be (?P<value>\d+(?:\.\d+)? ?(?:cm|centimet\w+|m|feet|ft|foot)\b.*|\d'\d{1,2}\"?)", P, "height"),
    frame(r"weigh (?P<value>\d.*)", P, "weight"),
)
MEMBERSHIP = (
    frame(r"be (?:an? |the )?(?:\w+ )?(?:member|captain|president|chair|treasurer|secretary|part|volunteer) (?:of|in|at) (?P<value>(?!the problem|it|this|that)\S.*)", P, "member_of", "member_of", "organization"),
    frame(r"(?:belong to|be in) (?P<value>(?:an?|the|my|our) (?:[\w'-]+ ){0,4}(?:club|band|choir|orchestra|team|league|church|union|society|book club|troupe|scouts)\b.*)", P, "member_of", "member_of", "organization"),
)
LANGUAGES = (
    frame(r"(?:speak|be fluent in|be conversational in|be bilingual in) (?P<value>(?!up|with|to|of|for|at|about)\S.*)", P, "language", "speaks", "language"),
    frame(r"(?:learn (?P<value>(?:how to |to )?(?!about|a lot|that|from|more|it)\S.*)|take (?P<course>\S.*? (?:lessons|classes|course|courses))\b.*)$", P, "learning", "learns", "field"),
)
PROFILE = (*NAMES, *AGES, *HEALTH, *MEMBERSHIP, *FAMILY, *PETS, *SCHOOL, *HOMES, *WORK, *LANGUAGES)
"""All of them, the more telling first."""
