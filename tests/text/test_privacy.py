"""Secrets and personal data in texts, and what a policy does with them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.errors import InvalidArgument
from memrecall.text.privacy import DETECTORS, SENSITIVE_DATA, DetectedKinds, PrivacyPolicy
from tests.cases import check_each, read_rows
from tests.text.growth import ALPHABETS

ALL = PrivacyPolicy("redact", "redact")
KEY_BLOCK = (
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAA\n-----END OPENSSH PRIVATE KEY-----"
)
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"
SECRETS: dict[str, str] = {
    "use sk-proj-abcdefghijklmnopqrstuvwx now": "use [redacted: api key] now",
    "AKIAIOSFODNN7EXAMPLE, right?": "[redacted: api key], right?",
    f"ghp_{'a1' * 20}": "[redacted: token]",
    f"github_pat_{'a1' * 20}": "[redacted: token]",
    f"glpat-{'a1' * 10} xoxb-{'12-' * 10}x": "[redacted: token] [redacted: token]",
    f"AIza{'Sy5' * 11}ab": "[redacted: api key]",
    f"sk_live_{'4e' * 12}": "[redacted: api key]",
    f"mr_0123456789abcdef_{'Ab-1' * 10}": "[redacted: api key]",
    f"before\n{KEY_BLOCK}\nafter": "before\n[redacted: private key]\nafter",
    KEY_BLOCK[:60]: "[redacted: private key]",
    f"it is {TOKEN}.": "it is [redacted: token].",
    f"Authorization: Bearer {'a1' * 12}": "Authorization: Bearer [redacted: token]",
    "postgresql://ann:hunter2@db/x": "postgresql://ann:[redacted: password]@db/x",
    "API_KEY=abc123def456": "API_KEY=[redacted: api key]",
    'export DB_PASSWORD="s3cret-enough"': 'export DB_PASSWORD="[redacted: password]"',
    '{"client_secret": "9f8e7d6c5b"}': '{"client_secret": "[redacted: token]"}',
    "password: hunter22": "password: [redacted: password]",
    "密码是 abc12345，别忘了": "密码是 [redacted: password]，别忘了",
    "密钥：k3y-0f-mine": "密钥：[redacted: api key]",
    "my password is hunter2": "my password is [redacted: password]",
    "the secret key is s3cr3tvalue, ok?": "the secret key is [redacted: api key], ok?",
    "API_KEY=abcdefghijklmnop": "API_KEY=[redacted: api key]",
    "passwd: correcthorsebattery.": "passwd: [redacted: password].",
    "我的密码：correcthorse": "我的密码：[redacted: password]",
    "api key: abc123def456": "api key: [redacted: api key]",
}
PERSONAL: dict[str, str] = dict(read_rows("personal", "personal"))
HARMLESS = read_rows("personal", "harmless")


def test_secrets_are_redacted_by_default() -> None:
    def check(text: str) -> None:
        assert PrivacyPolicy().redact(text) == SECRETS[text]
        assert ALL.redact(SECRETS[text]) == SECRETS[text]

    check_each(SECRETS, check)


def test_personal_data_is_tagged_by_default_and_card_numbers_are_secrets() -> None:
    def check(text: str) -> None:
        found, kind = DetectedKinds(), PERSONAL[text]
        redacted = PrivacyPolicy().redact(text, found)
        is_secret = kind == "card number"
        assert (found.redacted if is_secret else found.tagged) == {kind: 1}
        assert (redacted == text) is not is_secret
        assert f"[redacted: {kind}]" in ALL.redact(text)

    check_each(PERSONAL, check)
    kinds = {detector.kind for detector in DETECTORS}
    assert kinds == {*PERSONAL.values(), "api key", "token", "private key", "password"}


def test_ordinary_text_is_kept() -> None:
    def check(text: str) -> None:
        found = DetectedKinds()
        assert (ALL.redact(text, found), found) == (text, DetectedKinds())

    check_each(HARMLESS, check)


_WORDS = [*SECRETS, *PERSONAL, *ALPHABETS["secrets"].split(" ")]


@given(st.lists(st.sampled_from(_WORDS)), st.sampled_from(["", " ", "=", ": ", "@"]))
def test_redacting_twice_changes_nothing(words: list[str], joint: str) -> None:
    for policy in (ALL, PrivacyPolicy()):
        once = policy.redact(joint.join(words))
        assert policy.redact(once) == once


def test_fields_and_metadata_are_protected() -> None:
    metadata = {"password": "hunter2x", "to": ["ann@example.com"], "run_id": "4111111111111111"}
    fields = {"content": "sk-" + "a1" * 15, "speaker": None, "metadata": metadata}
    labels = {"redacted": ["api key", "password"], "tagged": ["e-mail"]}
    changed = PrivacyPolicy().protect(fields)
    assert changed["content"] == "[redacted: api key]"
    protected = {**metadata, "password": "[redacted: password]"}
    assert changed["metadata"] == {**protected, SENSITIVE_DATA: labels}
    assert PrivacyPolicy().protect({**fields, **changed}) == {}
    assert PrivacyPolicy("off", "off").protect(fields) == {}
    assert PrivacyPolicy("tag", "off").protect(fields).keys() == {"metadata"}
    forged = {"content": "a@b.com", "metadata": {SENSITIVE_DATA: {"tagged": [["e-mail"], "x"]}}}
    assert PrivacyPolicy().protect(forged)["metadata"] == {SENSITIVE_DATA: {"tagged": ["e-mail"]}}


def test_policy_is_one_action_or_two() -> None:
    assert PrivacyPolicy.parse("tag") == PrivacyPolicy("tag", "tag")
    assert PrivacyPolicy.parse("redact, off") == PrivacyPolicy("redact", "off")
    for text in ("", "redact,tag,off", "mask"):
        with pytest.raises(InvalidArgument, match="privacy"):
            PrivacyPolicy.parse(text)
