"""Secrets in what hooks capture, which leave the machine for no other."""

import re
from collections.abc import Iterable

from memrecall.text.privacy import SECRETS_ONLY

MASK = "[redacted]"


def redact_secrets(text: str) -> str:
    """Return the text with a mask in place of each secret."""
    return SECRETS_ONLY.redact(text)


def redact_patterns(text: str, patterns: Iterable[str]) -> str:
    """Return the text with a mask in place of each match of a user's patterns."""
    for pattern in patterns:
        text = re.sub(pattern, MASK, text)
    return text
