"""Checks that HTML for notebooks is well-formed and inert."""

import re
from html.parser import HTMLParser

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)> \"quoted\" 'single' & co"
TEXT_TAGS = {"div", "span", "strong", "em", "s", "details", "summary", "table", "tr", "th", "td"}


class HtmlChecker(HTMLParser):
    """A parser that collects tags, attributes and text, and checks that tags are closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.styles = ""
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.styles += "".join(value or "" for name, value in attrs if name == "style")
        self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def assert_harmless(html: str) -> HtmlChecker:
    """Check that the HTML has only inert tags and attributes, and loads nothing."""
    page = HtmlChecker(html)
    assert page.tags <= TEXT_TAGS
    assert page.attributes <= {"style", "dir"}
    assert not re.search(r"url\(|expression|import|position:", page.styles)
    return page
