"""Removal of secrets from what is stored: keys, tokens and passwords of well-known forms.

`redact_secrets` can also be passed as `redact` to `Memory`.
"""

import re
from collections.abc import Iterable

MASK = "[redacted]"
# Repetitions are bounded, and a key without an end takes the rest of the text: the time to search
# a hostile text stays linear.
_SECRETS = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:.*?-----END [A-Z ]{0,40}PRIVATE KEY-----|.*)"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bAIza[0-9A-Za-z_-]{35}"
    r"|\b(?:gh[pousr]_|github_pat_|glpat-|npm_|pypi-|hf_|xox[abeoprs]-|sk-|mr_[0-9a-f]{16}_)"
    r"[0-9A-Za-z_-]{20,500}"
    r"|\b[rs]k_(?:live|test)_[0-9A-Za-z]{16,200}"
    r"|\beyJ[\w-]{10,2000}\.[\w-]{10,4000}\.[\w-]{5,1000}",
    re.DOTALL,
)
# The name or scheme before a secret stays, because it is worth remembering.
_NAMED_SECRETS = re.compile(
    r"(?P<url>://[^\s/:@]{1,100}:)[^\s/@]{1,200}(?=@)"
    r"|(?P<scheme>\b(?:bearer|basic)\s{1,3})[\w.~+/=-]{16,4000}"
    r"|(?P<name>(?:api[ _-]?key|access[ _-]?key|secret(?:\skey)?|token|passw(?:or)?d|passphrase"
    r"|密码|口令|密钥)"
    r"[A-Za-z0-9_-]{0,40}[\"']?\s{0,3}(?:[=:：]|是|为|\bis\b:?)\s{0,3}[\"']?)"
    r"(?=[^\s\"'，。；,;]{0,200}\d)[^\s\"'，。；,;()<>${}]{6,200}"
    # Without a digit: one long word of one case, which is no name in a program.
    r"|(?P<word>(?:api[ _-]?key|access[ _-]?key|secret[ _-]key|passw(?:or)?d|passphrase"
    r"|密码|口令|密钥)"
    r"[A-Za-z0-9_-]{0,40}[\"']?\s{0,3}[=:：]\s{0,3}[\"']?)"
    r"(?-i:[a-z-]{12,200}|[A-Z-]{12,200})(?=[.!?]?(?:[\s\"'，。；,;]|$))",
    re.IGNORECASE,
)


def redact_secrets(text: str) -> str:
    """Return the text with a mask in place of each secret."""
    text = _SECRETS.sub(MASK, text)
    return _NAMED_SECRETS.sub(lambda match: f"{match[match.lastgroup or 0]}{MASK}", text)


def redact_patterns(text: str, patterns: Iterable[str]) -> str:
    """Return the text with a mask in place of each match of a user's patterns."""
    for pattern in patterns:
        text = re.sub(pattern, MASK, text)
    return text
