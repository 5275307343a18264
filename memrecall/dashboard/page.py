"""A visit: one page in one browser, in its language, and the only way from it to anybody's data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request

from memrecall.dashboard.auth import Language, Theme, Visitor, language_of, theme_of
from memrecall.dashboard.words import WORDS
from memrecall.memory import Library
from memrecall.scope import Permission, Scope
from memrecall.server.auth import Principal
from memrecall.server.http.service import Asking, Service

MOST_USERS = 200


class Elsewhere(Exception):
    """What is looked for is at another address."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.target = target


@dataclass(frozen=True, slots=True)
class Visit:
    """What a page needs to know of its browser."""

    service: Service
    visitor: Visitor
    language: Language
    theme: Theme
    path: str
    asked: Mapping[str, str]  # the query of the address

    @classmethod
    def of(cls, request: Request) -> "Visit":
        """The visit that a request begins."""
        state = request.scope["state"]
        visitor: Visitor = state["visitor"]
        headers = visitor.headers
        asked = dict(request.query_params)
        language, theme = language_of(headers), theme_of(headers)
        return cls(state["service"], visitor, language, theme, request.url.path, asked)

    @property
    def library(self) -> Library:
        """The service's library."""
        return self.service.library

    @property
    def user(self) -> str:
        """The user that the address names; empty if it names none."""
        return self.asked.get("user", "").strip()

    @property
    def here(self) -> str:
        """The address of this page."""
        return self.link(self.path, **self.asked)

    def say(self, name: str, /, **values: Any) -> str:
        """A text of the user interface in the visitor's language."""
        english, chinese = WORDS[name]
        return (chinese if self.language == "zh" else english).format(**values)

    def link(self, path: str, /, **asked: Any) -> str:
        """An address of the dashboard; what is empty is left out."""
        told = {name: value for name, value in asked.items() if value not in (None, "")}
        return f"{path}?{urlencode(told)}" if told else path

    def link_here(self, **changed: Any) -> str:
        """The address of this page with another query; None takes a word out of it."""
        return self.link(self.path, **{**self.asked, **changed})

    async def principal(self) -> Principal:
        """Who looks, now."""
        return await self.visitor.admit()

    async def scope(self, session_id: str | None = None) -> Scope:
        """The data of the page's user as the visitor may see it; refused like anywhere else."""
        principal = await self.principal()
        scope = principal.scope(self.user, session_id)
        await self.library.require_user(scope)
        return scope

    async def writing(self, session_id: str | None = None) -> Scope:
        """The same for a change; a key that may only read is refused."""
        (await self.principal()).require_writing()
        return await self.scope(session_id)

    async def asking(self) -> Asking:
        """The visitor as an endpoint sees who asks."""
        return Asking(self.service, await self.principal(), {})

    async def users(self, prefix: str = "") -> list[str]:
        """The ids of the users that the visitor may look at, as far as they begin so."""
        principal = await self.principal()
        if principal.users is not None:
            return [user for user in sorted(principal.users) if user.startswith(prefix)]
        return await self.library.store.owners.find_users(prefix, MOST_USERS)

    async def sees_service(self) -> bool:
        """Whether the visitor may look at the service itself."""
        return Permission.OPERATOR in (await self.principal()).permissions
