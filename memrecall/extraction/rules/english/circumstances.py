"""Frames of whom somebody lives with, and how he is: family, animals, health."""

from memrecall.extraction.rules.english.kinship import PET_WORD, RELATION_OF
from memrecall.extraction.rules.english.table import NUMBER, P, R, frame
from memrecall.extraction.rules.frames import ANY, NOW_OR_BEFORE, PAST

DIETS = (
    r"vegan|vegetarian|pescatarian|pescetarian|flexitarian|omnivore|c(?:o)?eliac"
    r"|lactose[- ]intolerant"
    r"|gluten[- ](?:intolerant|free)|diabetic|kosher|halal|keto|paleo|low[- ]carb|dairy[- ]free"
    r"|plant[- ]based|raw food|sugar[- ]free|low[- ]sodium|low[- ]fodmap|intermittent fasting"
    r"|mediterranean|sober|teetotal(?:ler|er)?"
)
_ILLS = (
    r"asthma|diabetes|migraines?|adhd|add|autism|insomnia|anxiety|depression|arthritis"
    r"|eczema|epilepsy"
    r"|hypertension|high blood pressure|low blood pressure|celiac disease|coeliac disease|ibs|lupus"
    r"|anemia|anaemia|scoliosis|tinnitus|dyslexia|hay fever|heart condition|bad knees?|bad back"
    r"|astigmatism|gerd|endometriosis|sciatica|hypothyroidism|chronic \w+|sleep apnea|cancer"
    r"|a (?:bad|weak|sore) (?:knee|back|shoulder|heart)|a pacemaker|dementia|osteoporosis|gout"
    r"|psoriasis|alzheimer'?s|parkinson'?s|[\w-]+(?:itis|algia|emia)|(?:[\w'-]+ ){1,2}(?:disease"
    r"|syndrome|disorder)"
)
_FAMILY = "|".join(
    word for word, relation in RELATION_OF.items() if relation not in ("treated_by", "taught_by")
)
FAMILY = (
    frame(
        rf"have (?P<value>(?:an?|no|any|{NUMBER}|some|several|twin) (?:(?!to\b|for\b|of\b"
        rf"|with\b|about\b|from\b|in\b|on\b|at\b)[\w-]+ ){{0,4}}?(?:{_FAMILY})(?=$|[,;]| "
        rf"(?:named|called|who|and|in|from|at|with|aged|now|together|living|that|on|whose"
        rf"|\()\b).*)",
        R,
        "family",
    ),
    frame(
        r"have (?P<value>(?:twins|kids|children|siblings|no (?:kids|children|siblings))\b.*)",
        R,
        "family",
    ),
    frame(
        r"be (?P<value>(?:an? |the )?(?:[\w-]+ ){0,3}(?:mother|father|mom|mum|dad|parent"
        r"|grandmother|grandfather|only child|twin|widow|widower|stepmom|stepdad)\b(?: (?:of"
        r"|to|with) .+)?)$",
        R,
        "family",
    ),
    frame(r"be engaged to (?P<value>.+)", R, "marital_status", "engaged_to", "person"),
    frame(
        r"(?:be|get|have been) (?:happily )?married to (?P<value>.+)",
        R,
        "marital_status",
        "married_to",
        "person",
        tenses=NOW_OR_BEFORE,
    ),
    frame(r"marry (?P<value>.+)", R, "marital_status", "married_to", "person", tenses=PAST),
    frame(
        r"(?:be|get) (?P<value>(?:happily |newly |recently )?(?:married|single|divorced"
        r"|engaged|widowed|separated)\b.*)",
        R,
        "marital_status",
        tenses=NOW_OR_BEFORE,
    ),
    frame(
        r"(?:be dating|date|be seeing|be engaged to) (?P<value>(?!back|from)\S.*)",
        R,
        "partner",
        "partner_of",
        "person",
    ),
    frame(
        r"be with (?P<value>my (?:\w+ )?(?:partner|\w*friend|wife|husband)) for .+", R, "partner"
    ),
    frame(r"get (?P<value>(?:a divorce|divorced)\b.*)", R, "marital_status"),
    frame(r"(?P<value>(?:break up|split up) with .+)", R, "partner", tenses=PAST, ended=True),
    frame(r"be (?P<value>(?:\w+ (?:weeks?|months?) )?(?:pregnant|expecting)\b.*)", R, "family"),
)
PETS = (
    frame(
        rf"have (?P<value>(?:an?|{NUMBER}|some|several|no) (?:[\w-]+,? "
        rf"){{0,4}}?(?i:{PET_WORD})\b.*)",
        R,
        "pet",
        "owns",
        "animal",
    ),
    frame(
        rf"(?:adopt|get|foster|rescue|buy) (?P<value>(?:an?|{NUMBER}) (?:[\w-]+,? "
        rf"){{0,4}}?(?i:{PET_WORD})\b.*)",
        R,
        "pet",
        "owns",
        "animal",
        tenses=PAST,
    ),
)
HEALTH = (
    frame(
        r"develop (?P<value>an? (?:[\w-]+ )?(?:allergy|intolerance|sensitivity)\b.*)",
        P,
        "allergy",
        tenses=NOW_OR_BEFORE,
    ),
    frame(r"weigh (?:about |around |roughly )?(?P<value>\d.*)", P, "weight"),
    frame(
        r"have (?P<value>(?:my|his|her) (?:appendix|tonsils|gallbladder|wisdom teeth|\w+) "
        r"(?:out|removed)\b.*)",
        "event",
        "health",
        tenses=PAST,
    ),
    frame(
        r"be (?:\w+ly |very |deathly |super )*allergic to (?P<value>.+)",
        P,
        "allergy",
        "allergic_to",
    ),
    frame(
        r"be (?:\w+ly |very |super )*(?:sensitive|intolerant) to (?P<value>(?!it|that|this|how"
        r"|what|the|your)\S.*)",
        P,
        "health",
    ),
    frame(
        r"use (?P<value>(?:an? (?:wheelchair|cane|walker|walking stick|inhaler|hearing aid|CPAP)"
        r"|crutches|hearing aids)\b.*)",
        P,
        "health",
    ),
    frame(
        r"have (?P<value>(?:an? )?(?:[\w-]+ ){0,2}(?:allergy|allergies|intolerance)\b.*)",
        P,
        "allergy",
    ),
    frame(
        rf"(?:be|go|turn|become) (?:an? |strictly |fully )?(?P<value>(?:strict |lifelong "
        rf")?(?:{DIETS}))\b",
        P,
        "diet",
        tenses=ANY,
    ),
    frame(
        rf"(?:follow|be on|eat|keep|try|do|stick to|start) (?:an? |the )?(?P<value>(?:strict "
        rf")?(?:(?:{DIETS})(?: diet)?$|(?:{DIETS}) |[\w-]+ diet\b).*)",
        P,
        "diet",
        tenses=NOW_OR_BEFORE,
    ),
    frame(
        rf"(?:have|suffer from|be diagnosed with|get diagnosed with|live with) "
        rf"(?P<value>(?i:(?:mild|severe|type \w+|chronic|terrible|bad|seasonal) "
        rf")*(?i:{_ILLS})(?:\b|$).*)",
        P,
        "health",
        tenses=NOW_OR_BEFORE,
    ),
    frame(
        r"be on (?P<value>(?:the |my |some )?(?:blood thinners?|antibiotics|medication|meds"
        r"|insulin|the pill|antidepressants|statins|steroids|beta blockers|painkillers|birth "
        r"control|crutches)\b.*)",
        P,
        "medication",
    ),
    frame(
        r"get (?P<value>(?:an? |really |bad |terrible )*(?:migraines?|headaches?|hives|rash"
        r"|heartburn|nosebleeds|panic attacks|acid reflux|sick|car ?sick|sea ?sick|motion "
        r"sick|cold sores|allergies)(?: (?:from|when|if|after|on|in|every)\b.*)?)$",
        P,
        "health",
    ),
    frame(
        r"be (?P<value>(?:\w+ )?(?:weeks?|months?) (?:post-?op|pregnant|sober|into "
        r"recovery)\b.*|recovering from .+|in remission\b.*|disabled|in a wheelchair|hard of "
        r"hearing)",
        P,
        "health",
    ),
    frame(r"be (?:diagnosed with|prescribed) (?P<value>.+)", P, "health", tenses=NOW_OR_BEFORE),
    frame(
        r"be (?P<value>left[- ]handed|right[- ]handed|(?:[\w-]+ )?colou?r[- ]?blind|dyslexic"
        r"|autistic|deaf|blind|short[- ]sighted|near[- ]?sighted)\b",
        P,
        "health",
    ),
    frame(
        r"be (?P<value>\d+(?:\.\d+)? ?(?:cm|centimet\w+|m|feet|ft|foot)\b.*|\d'\d{1,2}\"?)",
        P,
        "height",
    ),
    frame(r"fast (?P<value>(?:during|for|on) .+)", P, "diet"),
)
