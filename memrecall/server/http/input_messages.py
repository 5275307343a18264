"""The messages in a request, parsed like those that applications pass in."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    WithJsonSchema,
    WrapValidator,
)

from memrecall.messages import (
    ROLE_NAMES,
    ConversationMessage,
    parse_message,
    parse_messages,
    parse_role,
)
from memrecall.types import Role

RoleName = Annotated[str, WithJsonSchema({"type": "string", "enum": list(ROLE_NAMES)})]
ContentParts = dict[str, Any] | list[str | dict[str, Any]]
# No `type`: like in Python, an empty value such as 0 counts as absent.
_TIME_SCHEMA: dict[str, Any] = {"format": "date-time"}


# The schema of the objects that `parse_message` accepts; the values are parsed there, not here.
class InputMessage(BaseModel):
    """A message in OpenAI's format; unknown fields are ignored, empty ones count as absent."""

    model_config = ConfigDict(extra="allow")

    role: RoleName = "user"
    content: Annotated[
        str | ContentParts | None,
        Field(description="A text, or content parts; a message without text is skipped."),
    ] = None
    speaker: str | None = None
    name: Annotated[Any, Field(description="Like `speaker`, if that is absent.")] = None
    ts: Annotated[Any, Field(description="When it was said.", json_schema_extra=_TIME_SCHEMA)] = (
        None
    )
    timestamp: Annotated[
        Any, Field(description="Like `ts`, if that is absent.", json_schema_extra=_TIME_SCHEMA)
    ] = None
    message_id: str | None = None
    id: Annotated[Any, Field(description="Like `message_id`, if that is absent.")] = None
    parent_message_id: str | None = None
    content_type: str | None = None
    metadata: dict[str, Any] | Literal[""] | None = None
    tool_calls: Annotated[Any, Field(description="Kept in the metadata.")] = None
    tool_call_id: Annotated[Any, Field(description="Kept in the metadata.")] = None


InputRole = Annotated[Role, BeforeValidator(parse_role, json_schema_input_type=RoleName)]
_Message = Annotated[
    ConversationMessage,
    PlainValidator(parse_message, json_schema_input_type=str | InputMessage),
]
InputMessages = tuple[_Message, ...]


def accept_messages(limit: int) -> WrapValidator:
    """Return the validator of `InputMessages`: a text, a message, or up to `limit` of them."""

    def validate(value: Any, validate_list: Callable[[Any], InputMessages]) -> InputMessages:
        return parse_messages(validate_list(value if isinstance(value, list) else [value]))

    text = Annotated[str, Field(min_length=1)]
    items = Annotated[list[str | InputMessage], Field(min_length=1, max_length=limit)]
    return WrapValidator(validate, json_schema_input_type=text | InputMessage | items)
