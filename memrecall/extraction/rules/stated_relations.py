"""Relations for the knowledge graph that a statement gives."""

from dataclasses import replace
from datetime import UTC, datetime

from memrecall.extraction.rules.statements import Clause, FactMatch, StatedRelation
from memrecall.extraction.rules.tables import LanguageTable
from memrecall.text.times import find_times
from memrecall.text.words import is_place

_LISTED = frozenset({"likes", "dislikes", "speaks", "avoids", "allergic_to", "plays", "learns"})
_SHORT = frozenset({"works_as", "plays", "uses", "prefers", "studies", "has_condition"})
_MAX_VALUE = {"en": 60, "zh": 24}
_MAX_PLACE = 4
# Only the position of a time matters where this is used.
_ANY_TIME = datetime(2026, 6, 17, 12, tzinfo=UTC)


class RelationReader:
    """Reads the relations of a statement with the tables of its language."""

    def __init__(self, table: LanguageTable) -> None:
        self.table = table

    def read(
        self, clause: Clause, match: FactMatch, core: str, subject: str | None
    ) -> tuple[StatedRelation, ...]:
        """Return the relations that a clause states; a `subject` of None is the speaker."""
        if kin_and_name := self.named_kin(clause, match):
            return (self.kin_relation(*kin_and_name),)
        kin = self.table.search("kin_word", clause.noun) if clause.kind == "kin" else None
        is_introduction = clause.kind == "kin" and match.rule.about_speaker
        name = match.value if is_introduction else subject
        relations = [self.kin_relation(kin.group(), name)] if kin and name else []
        # Without a stated subject, it may be about anybody who was just mentioned, or one meal.
        is_diet = match.rule.relation in ("allergic_to", "avoids")
        is_unclear = clause.elided and clause.kind == "self" and is_diet
        if not is_introduction and (match.rule.ended or not is_unclear):
            relations += self._value_relations(match, subject, core)
        trip = self.table.search("trip", f"{clause.noun} {core}")
        is_ahead = match.rule.memory_type == "plan" and not match.negated
        if trip and is_ahead and (place := self.place_in(trip["place"])):
            relations.append(StatedRelation("travels_to", place, "place", subject))
        return tuple(relations)

    def named_kin(self, clause: Clause, match: FactMatch) -> tuple[str, str] | None:
        """Return ("husband", "Carlos") for "my husband's name is Carlos"."""
        noun = self.table.fullmatch("name_of_kin", clause.noun) if clause.kind == "thing" else None
        name = self.table.match("name", match.value)
        return (noun["who"].lower(), name.group()) if noun and name else None

    def kin_relation(self, noun: str, name: str, source: str | None = None) -> StatedRelation:
        """Return the relation to a relative, colleague or pet of that name."""
        if noun in self.table.words("pets"):
            return StatedRelation("owns", name, "animal", source)
        relationship = self.table.mapping("kinship").get(noun, "knows")
        return StatedRelation(relationship, name, "person", source)

    def trim_value(self, value: str) -> str:
        """Return the value without what only accompanies it: "Berlin" of "Berlin since May"."""
        bare = self.table.remove("trailing_value", value.strip())
        return self.table.remove("leading_value", bare).strip(" ,.，。、的")

    def place_in(self, text: str) -> str:
        """Return the name of the place with which a text begins; empty if it does not."""
        return text

    def _value_relations(
        self, match: FactMatch, source: str | None, core: str
    ) -> list[StatedRelation]:
        rule = match.rule
        if rule.field in ("family", "pet"):
            return self._family_relations(match.value, source)
        value = self.trim_value(match.value)
        is_unnamed = rule.relation == "works_at" and self.table.match("unnamed_firm", match.value)
        if rule.relation is None or not value or len(value) > _MAX_VALUE[self.table.language]:
            return []
        if rule.field in ("likes", "hobby") and self.table.search("no_liked_thing", core):
            return []
        if rule.kind == "organization" and (firm := self.table.search("firm_called", value)):
            value = firm["name"]
        elif is_unnamed:
            return []
        relationship, ended = rule.relation, match.ended
        if relationship == "avoids" and rule.ended:
            relationship = "likes"  # what a person gives up, they liked
        elif relationship == "likes" and match.negated and not ended:
            relationship = "dislikes"
        elif match.negated and relationship not in ("dislikes", "avoids"):
            ended = True
        relation = StatedRelation(relationship, value, rule.kind, source, ended=ended)
        return [*self._split(relation), *self._second_relations(match, source, core)]

    def _split(self, relation: StatedRelation) -> list[StatedRelation]:
        """Return one relation for each value of a list, and the place of an organization."""
        value, relationship = relation.destination, relation.relationship
        if relationship in _SHORT:
            value = self.table.remove("value_detail", value)
        value = self.table.remove("fans", value)
        if relationship == "from":
            value = value.removesuffix("人")
        parts = self.table.fullmatch("organization_in_place", value)
        if (
            relation.kind == "organization"
            and parts
            and self.place_in(parts["place"]) == parts["place"]
        ):
            firm = parts["firm"]
            place = StatedRelation("located_in", parts["place"], "place", firm, "organization")
            return [replace(relation, destination=firm), place]
        values = [value]
        if relationship in _LISTED:
            items = self.table.remove("value_verb", value)
            values = self.table.pattern("list_separator").split(items)
        names = (self.table.remove("leading_article", item) for item in values)
        return [
            replace(relation, destination=name)
            for name in names
            if name and not self.table.fullmatch("nameless", name)
        ]

    def _family_relations(self, value: str, source: str | None) -> list[StatedRelation]:
        """Return the relations to the relatives or pets that a value names, and to other pets."""
        relations: list[StatedRelation] = []
        for counted in self.table.pattern("counted_kin").finditer(value):
            noun = counted["noun"].lower()
            naming = self.table.search("called", counted["rest"])
            pet = [noun] if noun in self.table.words("pets") else []
            split = self.table.pattern("name_separator").split
            names = split(naming["name"]) if naming else pet
            relations += [self.kin_relation(noun, name, source) for name in names]
        return relations

    def _second_relations(
        self, match: FactMatch, source: str | None, core: str
    ) -> list[StatedRelation]:
        """Return what is studied at a school, the role at a company, and what came before."""
        moved = self.table.search("moved_from", core) if match.rule.relation == "lives_in" else None
        if moved and not match.ended:
            return [StatedRelation("lives_in", moved["place"], "place", source, ended=True)]
        fit = match.rule.pattern.match(core)
        groups = fit.groupdict() if fit else {}
        if match.rule.relation and (old := groups.get("old")):
            return [StatedRelation(match.rule.relation, old, match.rule.kind, source, ended=True)]
        if subject := self.trim_value(groups.get("subject") or ""):
            relationship = "studies" if match.rule.field == "school" else "teaches"
            return [StatedRelation(relationship, subject.removesuffix("专业"), "field", source)]
        if role := self.trim_value(groups.get("role") or ""):
            return [StatedRelation("works_as", role, "field", source)]
        return []


class ChineseRelations(RelationReader):
    """Reads the relations of Chinese statements."""

    def trim_value(self, value: str) -> str:
        """Return the value without times and particles: 成都 of 成都三年了."""
        for span in reversed(find_times(value, _ANY_TIME)):
            if span.position == 0 or span.position + len(span.text) == len(value):
                value = value.replace(span.text, "")
        return super().trim_value(value)

    def place_in(self, text: str) -> str:
        """Return the place with which a text begins: 合肥 of 合肥参加."""
        sizes = range(min(len(text), _MAX_PLACE), 1, -1)
        return next((text[:size] for size in sizes if is_place(text[:size])), "")
