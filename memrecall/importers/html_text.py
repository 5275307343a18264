"""The text of HTML, in linear time whatever the HTML is."""

import re
from html import unescape

_BLOCK = re.compile(
    r"(?:address|article|blockquote|br|div|d[ldt]|figure|footer|h[1-6]|header|hr|li|ol|p|pre|"
    r"section|table|tr|ul)$"
)
_HIDDEN = ("script", "style", "head", "title")
_CLOSING = re.compile(f"</(?:{'|'.join(_HIDDEN)})", re.IGNORECASE)


def html_to_text(html: str) -> str:
    """Return the visible text, one block a line; list items begin with a dash."""
    parts: list[str] = []
    position = 0
    while (start := html.find("<", position)) >= 0:
        parts.append(html[position:start])
        position, mark = _read_tag(html, start)
        parts.append(mark)
    parts.append(html[position:])
    lines = (" ".join(line.split()) for line in unescape("".join(parts)).split("\n"))
    return "\n".join(line for line in lines if line and line != "-")


def _read_tag(html: str, start: int) -> tuple[int, str]:
    """Return where a tag ends, and what stands for it in the text."""
    if html.startswith("<!--", start):
        return _after(html, "-->", start), ""
    if not (html[start + 1 : start + 2].isalpha() or html[start + 1 : start + 2] in ("/", "!")):
        return start + 1, "&lt;"  # a sign, not a tag
    end = _after(html, ">", start)
    words = html[start + 1 : end - 1].replace("/", " / ").split(maxsplit=2)
    name = next((word.lower() for word in words[:2] if word != "/"), "")
    is_opening = bool(words) and words[0] != "/"
    if name in _HIDDEN and is_opening:
        closing = _CLOSING.search(html, end)
        return (_after(html, ">", closing.start()) if closing else len(html)), ""
    if name == "li" and is_opening:
        return end, "\n- "
    return end, "\n" if _BLOCK.match(name) else ""


def _after(html: str, mark: str, start: int) -> int:
    """Return the position after the next mark; the end of the text if there is none."""
    position = html.find(mark, start)
    return len(html) if position < 0 else position + len(mark)
