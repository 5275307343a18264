"""One wording of validation errors for the command line, the service and the dashboard."""

from typing import Annotated

import pytest
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from memrecall.errors import describe_validation_error, explain_validation_problem
from memrecall.server.errors import problem_from_validation
from memrecall.types import CleanText, Moment

from .cases import read_rows


class Sample(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Annotated[CleanText, Field(min_length=1, max_length=5, pattern=r"\S")]
    tags: Annotated[list[str], Field(min_length=1)] = ["x"]
    ts: Moment | None = None
    size: Annotated[int, Field(ge=1, le=200)] = 1

    @model_validator(mode="after")
    def _check(self) -> "Sample":
        if self.name == "bad":
            raise ValueError("choose another name")
        return self


@pytest.mark.parametrize(("fields", "line", "message"), read_rows("values", "problems"))
def test_line_and_http_problem_share_their_wording(
    fields: dict[str, object], line: str, message: str
) -> None:
    with pytest.raises(ValidationError) as error_info:
        Sample(**fields)
    assert describe_validation_error(error_info.value) == line
    errors = [{**item, "loc": ("body", *item["loc"])} for item in error_info.value.errors()]
    problem = problem_from_validation(RequestValidationError(errors))
    assert problem.details["fields"][0]["message"] == message
    assert problem.message.endswith(message)


def test_own_checks_name_the_field_without_the_value() -> None:
    with pytest.raises(ValidationError) as error_info:
        Sample(name="a", ts="yesterday")
    line = describe_validation_error(error_info.value)
    assert line.startswith("ts")
    assert "the value" not in line
    assert "the value" not in explain_validation_problem(error_info.value.errors()[0])
