"""What the tests of extraction by a model share."""

import json
from typing import Any

from autogen_core.models import SystemMessage, UserMessage

from memrecall.extraction import Fact, Known
from memrecall.testing import Request, say

from .talking import NOW

PARIS = Known("k1", "User lives in Paris.", "user", "home", "user_profile")
BERLIN = Fact("User moved to Berlin.", "user", "user_profile", "home", ("m0",), NOW)
TEA = Fact("User likes tea.", "user", "user_preference", "likes", ("m0",), NOW)


def answer(**value: Any) -> Any:
    return say(json.dumps(value, ensure_ascii=False))


def shown(request: Request) -> list[dict[str, Any]]:
    system, user = request.messages
    assert isinstance(system, SystemMessage)
    assert isinstance(user, UserMessage)
    assert isinstance(user.content, str)
    return [json.loads(line) for line in user.content.split("\n")]
