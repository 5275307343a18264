"""Reading of fixtures and generated files in tests."""

from pathlib import Path
from typing import Any, NamedTuple

from memrecall.importers.plan import Survey, make_plan
from memrecall.importers.records import ReadOptions, Record
from memrecall.importers.source import open_source
from memrecall.types import NewMemory, NewMessage

FIXTURES = Path(__file__).parents[2] / "fixtures" / "imports"


class Result(NamedTuple):
    """What was read of a source."""

    records: list[Record]
    survey: Survey
    missing: list[str]

    @property
    def messages(self) -> list[NewMessage]:
        return [record.item for record in self.records if isinstance(record.item, NewMessage)]

    @property
    def memories(self) -> list[NewMemory]:
        return [record.item for record in self.records if isinstance(record.item, NewMemory)]

    @property
    def said(self) -> list[tuple[str, str | None, str]]:
        """The role, the speaker and the text of each message."""
        return [(item.role.value, item.speaker, item.content) for item in self.messages]

    @property
    def ids(self) -> list[str | None]:
        return [item.message_id for item in self.messages]


def read(path: Path, format_name: str | None = None, **options: Any) -> Result:
    """Read a file, folder or archive completely."""
    with open_source(path) as source:
        plan = make_plan(source, ReadOptions(**options), format_name)
        records = [item for _, item in plan.items() if isinstance(item, Record)]
        return Result(records, plan.survey, [str(error) for error in plan.missing])
