"""Frames of what somebody works and studies."""

from memrecall.extraction.rules.english.table import P, frame
from memrecall.extraction.rules.frames import NOW_OR_BEFORE, PAST

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
JOB = "(?:" + "".join(_JOBS.split()) + ")s?"
_SCHOOL = (
    r"(?:[A-Z][\w&.'-]*(?: [A-Z][\w&.'-]*| of| for| and| the)* ?)?(?:university|college"
    r"|school|institute|academy|[A-Z]{2,}|[A-Z][a-z]+)"
)
WORK = (
    frame(
        r"hand in (?P<value>(?:my|their) (?:notice|resignation)\b.*)",
        "event",
        "job",
        tenses=PAST,
        ended=True,
    ),
    frame(
        r"be (?:at|with) (?P<value>[A-Z][\w&.'-]*(?: [A-Z][\w&.'-]*){0,2}) "
        r"(?:as (?:an?|the)|doing) .+",
        P,
        "employer",
        "works_at",
        "organization",
    ),
    frame(
        r"be with (?P<value>[A-Z]\S+(?: [A-Z]\S+)*) for .+",
        P,
        "employer",
        "works_at",
        "organization",
    ),
    frame(
        r"(?:manage|lead|head|run|supervise) (?P<value>(?:an?|the|our) (?:[\w-]+ ){0,3}"
        r"(?:team|department|group|lab|division|unit)\b.*)",
        P,
        "job",
    ),
    frame(r"freelance(?P<value>(?: as| for| in) .+)", P, "job"),
    frame(r"report to (?P<value>[A-Z].+)", P, "manager", "managed_by", "person"),
    frame(
        r"work (?P<value>(?:mon|tues|wednes|thurs|fri|satur|sun)day(?:s| to| through|,).*"
        r"|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day(?:s| to| through|,).*)",
        P,
        "work_style",
    ),
    frame(
        r"work (?:\w+[- ]time )?(?:as|like) (?:an? |the )?(?P<value>.+)",
        P,
        "job",
        "works_as",
        "field",
    ),
    frame(
        r"work (?:\w+[- ]time |remotely |mostly )*(?:at|for) (?P<value>(?!home|night|least"
        r"|(?:me|us|you|him|her|them)\b|the moment|free|myself|\d)\S.*)",
        P,
        "employer",
        "works_at",
        "organization",
    ),
    frame(r"work in (?P<value>(?!progress)\S.*)", P, "job", "works_in", "field"),
    frame(
        r"work (?P<value>from home|remotely|night shifts?|nights|part[- ]time|full[- ]time"
        r"|freelance|for myself|shifts?|weekends?|the night shift)",
        P,
        "work_style",
    ),
    frame(
        r"(?:be employed|be working) (?:at|by|with|for) (?P<value>.+)",
        P,
        "employer",
        "works_at",
        "organization",
    ),
    frame(
        r"run (?P<value>(?:a|an|my own|our own|the) (?:[\w-]+ )*(?:business|company|shop"
        r"|store|bakery|cafe|café|restaurant|startup|studio|farm|blog|channel|podcast|agency"
        r"|clinic|hotel|bar|salon|gym).*)",
        P,
        "job",
    ),
    frame(
        r"(?:join|start (?:working )?(?:at|for)|start (?:a|my) (?:new )?(?:job|position|role) "
        r"(?:at|with)|get (?:a|the) (?:new )?job (?:at|with)|be hired by|switch jobs? to|get "
        r"hired (?:at|by)) (?P<value>[A-Z].+)",
        P,
        "employer",
        "works_at",
        "organization",
        tenses=PAST,
    ),
    frame(
        r"(?:start|get|land|find|accept) (?P<value>(?:a|my|an) (?:new )?(?:job|position"
        r"|role)(?: .*)?)",
        "event",
        "job",
        tenses=PAST,
    ),
    frame(r"(?:get|be) promoted to (?P<value>.+)", P, "job", "works_as", "field", tenses=PAST),
    frame(
        r"(?:quit|leave|resign from|lose) (?P<value>(?:my|the) (?:old )?(?:job|position"
        r"|company|role)\b.*)",
        "event",
        "job",
        tenses=PAST,
        ended=True,
    ),
    frame(
        r"(?:be|get) (?P<value>laid off|fired|made redundant)",
        "event",
        "job",
        tenses=NOW_OR_BEFORE,
        ended=True,
    ),
    frame(
        r"(?:be )?(?P<value>retired?|unemployed|self[- ]employed|between jobs|on (?:maternity"
        r"|paternity|parental|sick) leave|on sabbatical)\b",
        P,
        "job",
        tenses=NOW_OR_BEFORE,
    ),
    frame(
        rf"be (?:an? |the (?=[\w -]+ (?:at|of) [A-Z])|(?=(?:both |senior |head |chief |deputy"
        rf" |retired )?{JOB}\b))(?P<value>(?:[\w/-]+ "
        rf"){{0,4}}?{JOB}(?:,? (?:at|for|in|with|on|of|and|mostly|mainly|specialis\w+"
        rf"|specializ\w+) (?!this|that|the (?:day|trip|team))\S.*)?)$",
        P,
        "job",
        "works_as",
        "field",
    ),
    frame(
        rf"become (?:an? )(?P<value>(?:[\w/-]+ ){{0,3}}?{JOB}(?:,? (?:at|for|in|with) \S.*)?)$",
        P,
        "job",
        "works_as",
        "field",
        tenses=NOW_OR_BEFORE,
    ),
    frame(r"(?:teach|coach|tutor) (?P<value>(?!me|you|us|him|her|them|it|that)\S.*)", P, "job"),
)
SCHOOL = (
    frame(
        rf"study (?P<field>(?!abroad|hard|for|at|in)[\w &/-]+?) (?:at|in) (?P<value>(?:the "
        rf")?{_SCHOOL}.*)",
        P,
        "school",
        "studies_at",
        "organization",
    ),
    frame(
        rf"study (?:at|in) (?P<value>(?:the )?{_SCHOOL}.*)",
        P,
        "school",
        "studies_at",
        "organization",
    ),
    frame(
        r"(?:attend|go to|enroll(?: at| in)|be enrolled (?:at|in)|be (?:studying )?at) "
        r"(?P<value>(?:the )?(?:[A-Z][\w&.'-]*(?: of| for)? ?)*(?:[Uu]niversity|[Cc]ollege"
        r"|[Ss]chool|[Ii]nstitute|[Aa]cademy|Elementary|High|Prep|MIT|UCLA|NYU|ETH|UCL|LSE)\b.*)",
        P,
        "school",
        "studies_at",
        "organization",
    ),
    frame(
        r"study (?P<value>(?!hard|a lot|for |at |in |late|all|more|every|tonight|tomorrow"
        r"|together)[\w &/-]+.*)",
        P,
        "major",
        "studies",
        "field",
    ),
    frame(
        r"(?:major|minor|specialise|specialize) in (?P<value>.+)",
        P,
        "major",
        "studies",
        "field",
        tenses=NOW_OR_BEFORE,
    ),
    frame(
        r"have (?P<value>(?:an?|my|two) (?:[\w'-]+ )?(?:degree|PhD|phd|master'?s|bachelor'?s|mba"
        r"|diploma|licen[cs]e|certificate|pilot'?s licen[cs]e) ?(?:in|from|of|as)?\b.*)",
        P,
        "education",
    ),
    frame(
        r"be (?:still )?in (?P<value>(?:(?:elementary|primary|middle|high|secondary|med|medical|law"
        r"|grad|graduate|business|art|nursing) school|kindergarten|preschool|nursery|daycare"
        r"|college|uni|university|(?:year|grade) \w+|\w+ grade)\b.*)",
        P,
        "school",
    ),
    frame(r"drop out of (?P<value>.+)", "event", "education", tenses=PAST, ended=True),
    frame(
        r"graduate (?:from|in|with) (?P<value>.+)",
        "event",
        "education",
        "graduated_from",
        "organization",
        tenses=PAST,
    ),
    frame(
        r"(?:do|pursue|finish|work on|write|complete|start) (?:my|a|an)"
        r" (?P<value>(?:PhD|phd|MBA|MSc|BSc"
        r"|ph\.d\.?|doctorate|master'?s?|mba|bachelor'?s?|degree|thesis|dissertation"
        r"|internship|apprenticeship|residency)\b.*)",
        P,
        "school",
        tenses=NOW_OR_BEFORE,
    ),
    frame(
        r"be (?:in (?:my )?|a )?(?P<value>(?:first|second|third|fourth|final|1st|2nd|3rd|4th"
        r"|last|freshman|sophomore|junior|senior)[- ]year\b.*|(?:\d{1,2}(?:th|st|nd|rd)"
        r"|first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth) (?:grade|grader"
        r"|year)\b.*)",
        P,
        "school",
    ),
)
