"""What came of a question: one line of the results."""

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Recalled:
    """What a recall handed off, and what it took."""

    relevant_memory_keys: tuple[str, ...]
    confidence: float
    abstained: bool
    stop_reason: str
    iterations: int
    windows: tuple[int, ...]
    tool_calls: int
    model_calls: int
    prompt_characters: int
    fallback: str | None = None  # why the rules had to stand in for the model


@dataclass(frozen=True, slots=True)
class Answer:
    """The keys found for one question, the best first; the same for every run of the same thing."""

    query_id: str
    category: str
    retrieved: tuple[tuple[str, float | None], ...]
    probabilities: tuple[float, ...] | None = None  # of `retrieved`, where the search gives them
    recalled: Recalled | None = None

    @property
    def keys(self) -> list[str]:
        """The keys alone, in their order."""
        return [key for key, _ in self.retrieved]

    def to_line(self) -> str:
        """One line of JSON."""
        fields: dict[str, Any] = {
            "query_id": self.query_id,
            "category": self.category,
            "retrieved": self.retrieved,
        }
        if self.probabilities is not None:
            fields["probabilities"] = self.probabilities
        if self.recalled is not None:
            fields |= asdict(self.recalled)
        return json.dumps(fields, ensure_ascii=False) + "\n"

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "Answer":
        """The inverse of `to_line`."""
        data = dict(fields)
        query_id, category = data.pop("query_id"), data.pop("category")
        retrieved = tuple((key, score) for key, score in data.pop("retrieved"))
        chances = data.pop("probabilities", None)
        for name in ("relevant_memory_keys", "windows"):
            if name in data:
                data[name] = tuple(data[name])
        return cls(
            query_id=query_id,
            category=category,
            retrieved=retrieved,
            probabilities=None if chances is None else tuple(chances),
            recalled=Recalled(**data) if data else None,
        )
