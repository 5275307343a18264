"""People, animals and other things that belong to somebody, in English: "my sister", "our cat"."""

from memrecall.extraction.rules.frames import words

_RELATIONS = {
    "married_to": "wife husband spouse",
    "engaged_to": "fiance fiancee fiancé fiancée",
    "partner_of": "partner girlfriend boyfriend",
    "child_of": "mother father mom mum dad mommy daddy parents parent mama papa",
    "parent_of": "son daughter kid kids child children baby toddler twins stepson stepdaughter"
    " sons daughters youngest oldest eldest",
    "sibling_of": "brother sister sibling siblings brothers sisters twin half-brother half-sister",
    "grandchild_of": "grandma grandmother grandpa grandfather grandad granddad"
    " grandparents granny gran nan",
    "grandparent_of": "grandson granddaughter grandchild grandchildren grandkids",
    "relative_of": "uncle aunt cousin cousins nephew niece uncles aunts nephews nieces"
    " in-laws mother-in-law father-in-law "
    "brother-in-law sister-in-law",
    "friend_of": "friend friends buddy bestie mate ex",
    "served_by": "landlord landlady accountant lawyer nanny babysitter cleaner hairdresser",
    "colleague_of": "colleague coworker co-worker teammate cofounder co-founder",
    "managed_by": "boss manager supervisor lead line-manager",
    "advised_by": "advisor adviser mentor tutor",
    "taught_by": "teacher professor coach instructor",
    "lives_with": "roommate flatmate housemate",
    "neighbour_of": "neighbor neighbour neighbors neighbours",
    "treated_by": "doctor dentist therapist physician gp",
}
_PETS = """
dog dogs puppy pup cat cats kitten kittens rabbit rabbits bunny hamster parrot bird birds fish
goldfish turtle tortoise snake lizard gecko ferret horse pony chicken chickens hen hens goat goats
guinea-pig pet pets labrador poodle beagle corgi retriever terrier spaniel dachshund husky collie
shepherd bulldog pug greyhound tabby hedgehog budgie canary
"""

RELATION_OF = {word: name for name, words in _RELATIONS.items() for word in words.split()}
"""What somebody's sister, boss or dentist is to him, as a relation that begins with him."""

ONLY_ONE = words(
    """
    wife husband spouse fiance fiancee fiancé fiancée partner girlfriend boyfriend boss manager
    supervisor dentist doctor gp therapist landlord landlady advisor adviser accountant lawyer
    """
)
"""Of whom one has one at a time: a new dentist takes the place of the old."""

PETS = frozenset(_PETS.split())
MANY = frozenset(
    word
    for word in (*RELATION_OF, *PETS)
    if word in ("children", "twins", "in-laws") or word.endswith(("s", "kids"))
) - {"boss"}
"""Words for several, whose verbs have no "s"."""

KIN_WORD = "|".join(sorted(RELATION_OF, key=len, reverse=True))
PET_WORD = "|".join(sorted(PETS, key=len, reverse=True)).replace("guinea-pig", "guinea pigs?")
