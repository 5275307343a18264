"""What a model may answer to the prompts of extraction: checked, and read leniently."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator


def _numbers(value: object) -> list[int]:
    """Numbers in whatever clothes: 1, "1", ["1", 2]; the rest is left out."""
    items = value if isinstance(value, list) else [value]
    return [int(item) for item in items if isinstance(item, int | str) and str(item).isdigit()]


def _text(value: object) -> str:
    return "" if value is None or value in ("null", "None", "none") else str(value).strip()


def _number(value: object) -> int | None:
    found = _numbers(value)
    return found[0] if found else None


Text = Annotated[str, BeforeValidator(_text)]
Numbers = Annotated[list[int], BeforeValidator(_numbers)]
Number = Annotated[int | None, BeforeValidator(_number)]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")


class FactItem(_Answer):
    """A fact as a model writes it; only its text is needed."""

    text: Text
    about: Text = ""
    type: Text = ""
    field: Text = ""
    sources: Numbers = Field(default_factory=list)
    since: Text = ""
    negated: bool = False

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        return {"text": value} if isinstance(value, str) else value


class FactsAnswer(_Answer):
    """The answer to the prompt `extract_facts`."""

    facts: list[FactItem]

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, value: object) -> object:
        return _wrapped(value, "facts", "text")


class DecisionItem(_Answer):
    """A decision as a model writes it."""

    fact: Number
    event: Text
    known: Number = None
    reason: Text = ""


class DecisionsAnswer(_Answer):
    """The answer to the prompt `decide`."""

    decisions: list[DecisionItem]

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, value: object) -> object:
        return _wrapped(value, "decisions", "event")


class EntityItem(_Answer):
    """An entity as a model writes it."""

    name: Text
    type: Text = ""


class RelationItem(_Answer):
    """A relation as a model writes it."""

    source: Text
    relationship: Text
    destination: Text
    sources: Numbers = Field(default_factory=list)
    since: Text = ""
    ended: bool = False


class RelationsAnswer(_Answer):
    """The answer to the prompt `extract_relations`."""

    entities: list[EntityItem] = Field(default_factory=list)
    relations: list[RelationItem]


class SummaryAnswer(_Answer):
    """The answer to the prompt `summarise`."""

    summary: Text


def _wrapped(value: object, name: str, needed: str) -> Any:
    """A bare list, or one item alone, as the object that was asked for."""
    if isinstance(value, list):
        return {name: value}
    if isinstance(value, dict) and name not in value and needed in value:
        return {name: [value]}
    return value
