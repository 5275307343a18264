"""The context of one page in one browser: language, address and access to data."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request

from memrecall.dashboard.auth import Browser, Theme, choose_language, choose_theme
from memrecall.errors import NotFound
from memrecall.memory import AsyncMemory, Library
from memrecall.scope import KEY_MEMBER, Permission, Scope, SpaceRole, space_not_found, space_owner
from memrecall.server.auth import Principal
from memrecall.server.http.context import RequestContext, Service
from memrecall.text.language import read_phrases
from memrecall.types import Language

ROWS_PER_PAGE = 25  # of all lists
_MAX_USERS = 200
SPACE_PAGE = "/spaces/space"
# The pages that show a space if the address names one; all others show the user's own data.
SPACE_PAGES = frozenset({SPACE_PAGE, "/explorer", "/explorer/memories", "/explorer/memory"})
_FOLDER = Path(__file__).parent

# The texts of the user interface in English and Chinese, by name.
WORDS = read_phrases(_FOLDER / "words.json")
# Stored values in Chinese, by kind: roles, types, relations and so on. One that is not listed is
# shown as it is: models invent types and relations.
_CHINESE_TERMS: dict[str, dict[str, str]] = json.loads(
    (_FOLDER / "terms.zh.json").read_text("utf-8")
)


@dataclass
class Redirect(Exception):
    """Sends the browser to another address instead of building the page."""

    target: str


@dataclass(frozen=True, slots=True)
class Page:
    """What the code of a page needs: the service, the browser and the query of the address."""

    service: Service
    browser: Browser
    language: Language
    theme: Theme
    path: str
    query: Mapping[str, str]

    @classmethod
    def from_request(cls, request: Request) -> "Page":
        """Return the page that a request loads."""
        state = request.scope["state"]
        browser: Browser = state["browser"]
        return cls(
            service=state["service"],
            browser=browser,
            language=choose_language(browser.headers),
            theme=choose_theme(browser.headers),
            path=state.get("missing_path", request.url.path),
            query=dict(request.query_params),
        )

    @property
    def library(self) -> Library:
        """The service's library."""
        return self.service.library

    @property
    def user(self) -> str:
        """The user in the address; empty if there is none."""
        return self.query.get("user", "").strip()

    @property
    def space(self) -> str:
        """The space in the address, on pages that show one; else empty."""
        return self.query.get("space", "") if self.path in SPACE_PAGES else ""

    @property
    def url(self) -> str:
        """The address of this page."""
        return self.link(self.path, **self.query)

    def text(self, name: str, /, **values: Any) -> str:
        """Return a text of the user interface in the language of the page."""
        english, chinese = WORDS[name]
        return (chinese if self.language == "zh" else english).format(**values)

    def term(self, kind: str, value: str) -> str:
        """Return the name of a stored value, such as a role, in the language of the page."""
        if self.language == "zh":
            return _CHINESE_TERMS[kind].get(value, value)
        return value if kind == "entity" else value.replace("_", " ")  # a name may have them

    def term_names(self, kind: str) -> dict[str, str]:
        """Return the known values of a kind by their names in the language of the page."""
        return {self.term(kind, value): value for value in _CHINESE_TERMS[kind]}

    def link(self, path: str, /, **query: Any) -> str:
        """Return an address of the dashboard without the empty query values."""
        values = {name: value for name, value in query.items() if value not in (None, "")}
        return f"{path}?{urlencode(values)}" if values else path

    def user_link(self, path: str, /, **query: Any) -> str:
        """Return an address of the dashboard for the user, and the space, of this page."""
        space = self.space if path in SPACE_PAGES else None
        return self.link(path, **{"user": self.user, "space": space, **query})

    def link_here(self, **changes: Any) -> str:
        """Return the address of this page with other query values; None removes one."""
        return self.link(self.path, **{**self.query, **changes})

    async def principal(self) -> Principal:
        """Return the current principal of the browser."""
        return await self.browser.authenticate()

    async def scope(self, session_id: str | None = None) -> Scope:
        """Return the scope of the user or space in the address; NotFound if it is not allowed."""
        if self.space:
            store = self.library.store
            for scope in await self.member_scopes():
                await store.read_version(scope)  # raises if the user or agent is disabled
                with suppress(NotFound):
                    return await store.spaces.enter(scope, self.space)
            # Operators see any space's members and changes, as nobody, so that they change none.
            if self.path == SPACE_PAGE and await self.sees_all_spaces():
                return Scope(space_owner(self.space), member="", role=SpaceRole.READER)
            raise space_not_found()
        context = await self.request_context()
        scope = await context.readable_scope(self.user, self.query.get("project") or None)
        return replace(scope, session_id=session_id)

    async def member_scopes(self) -> list[Scope]:
        """Return the scopes that may enter spaces: of the user in the address, and of the key."""
        principal = await self.principal()
        key = f"{KEY_MEMBER}{principal.key_id}"
        scopes = [Scope(key, principal.agent_id, None, principal.permissions, member=key)]
        if not self.user or self.user.startswith(KEY_MEMBER):  # no key enters as another one
            return scopes
        return [principal.scope(self.user), *scopes]

    async def sees_all_spaces(self) -> bool:
        """Return True without a user in the address, if the key is an operator's for all users."""
        return not self.user and (await self.principal()).is_admin

    async def log_read(self) -> None:
        """Write to the audit log of the user or space that a key for all users reads this page."""
        principal = await self.principal()
        if principal.reads is not None:
            principal.reads.users.add((await self.scope()).user_id)
            await principal.reads.log(self.library.store, principal.actor, f"page {self.path}")

    async def memory(self) -> AsyncMemory:
        """Return the memory of the user or space in the address; NotFound if it is not allowed."""
        scope = await self.scope()
        if not self.space:
            return await (await self.request_context()).memory(self.user)
        # Without an actor, changes are the member's: other members do not know their keys.
        user, granted = str(scope.member), scope.permissions
        key = user if user.startswith(KEY_MEMBER) else None
        bound = self.service.memory.bind(user_id=user, member=key, permissions=granted)
        return await bound.enter(self.space)

    async def writable_memory(self) -> AsyncMemory:
        """Return the memory for a change; raise if the key may not make it."""
        (await self.principal()).require_write()
        return await self.memory()

    async def writable_scope(self, session_id: str | None = None) -> Scope:
        """Return the scope for a change; raise PERMISSION_DENIED if the key is read-only."""
        (await self.principal()).require_write()
        return await self.scope(session_id)

    def database_file(self, principal: Principal) -> str | None:
        """Return the database's file for commands; None for a URL, or if the key may not see it."""
        location = self.library.settings.db
        is_shown = Permission.OPERATOR in principal.permissions and "://" not in location
        return location if is_shown else None

    async def request_context(self) -> RequestContext:
        """Return the context that the handlers of the API take."""
        return RequestContext(self.service, await self.principal(), {})

    async def find_users(self, prefix: str = "") -> list[str]:
        """Return the ids of the users that the browser may view, by prefix."""
        principal = await self.principal()
        if principal.users is not None:
            return [user for user in sorted(principal.users) if user.startswith(prefix)]
        return await self.library.store.owners.find_users(prefix, _MAX_USERS)
