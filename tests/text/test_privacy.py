"""Secrets and personal data in texts, and what a policy does with them."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.errors import InvalidArgument
from memrecall.text.privacy import DETECTORS, SENSITIVE_DATA, DetectedKinds, PrivacyPolicy
from tests.cases import check_each, read_rows
from tests.text.growth import ALPHABETS
from tests.text.secret_forms import FORMS, KEY_BLOCK

ALL = PrivacyPolicy("redact", "redact")
SECRETS: dict[str, str] = {
    f"before\n{KEY_BLOCK}\nafter": "before\n[redacted: private key]\nafter",
    KEY_BLOCK[:60]: "[redacted: private key]",
    KEY_BLOCK.replace("KEY-", "KEY BLOCK-"): "[redacted: private key]",
    f"glpat-{'a1' * 10} xoxb-{'12-' * 10}x": "[redacted: token] [redacted: token]",
    "pass=Xy12345678 DB_PASS=Xy1234": "pass=[redacted: password] DB_PASS=[redacted: password]",
}
SECRETS |= {
    form.replace("§", ""): re.sub("(?s)§.*?§", f"[redacted: {kind}]", form)
    for kind, forms in FORMS.items()
    for form in forms.split(" | ")
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
    assert kinds == {*PERSONAL.values(), *FORMS}


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


@given(
    st.sampled_from(["password: {}", "my pwd is {} now", "密码是{}，好", "x_token={}", '"{}"']),
    st.text(string.ascii_letters + string.digits + "$@#%&*()<>{}!;,.?/_-", min_size=8, max_size=20),
)
def test_no_value_is_redacted_in_part(frame: str, value: str) -> None:
    before, after = frame.split("{}")
    redacted = PrivacyPolicy().redact(frame.format(value))
    rest = redacted.removeprefix(before).removesuffix(after)
    assert rest == value or re.fullmatch(r"\[redacted: \w+\][^\w\[]*", rest)


def test_fields_and_metadata_are_protected() -> None:
    metadata: dict[str, object] = {"password": "hunter2x", "to": ["ann@example.com"]}
    metadata |= {"run_id": "4111111111111111", "count": 7, "is_new": True, "at": 1738123456789}
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
    card, key, mark = 4111111111111111, "ghp_" + "a1" * 20, "[redacted: card number]"
    unusual = {"paid": card, "order_id": str(card), key: 1, f"{key}x": 2, "密码": "abc12345"}
    changed = PrivacyPolicy().protect({"metadata": {**unusual, "pwd": 123456}})["metadata"]
    assert changed.pop(SENSITIVE_DATA) == {"redacted": ["card number", "token", "password"]}
    values = [mark, mark, 1, 2, "[redacted: password]", "[redacted: password]"]
    names = ["paid", "order_id", "[redacted: token]", "[redacted: token]'", "密码", "pwd"]
    assert [*changed.items()] == [*zip(names, values, strict=True)]
    marked = {"content": "it is [redacted: token]", "metadata": {}}
    assert PrivacyPolicy().protect(marked)["metadata"] == {SENSITIVE_DATA: {"redacted": ["token"]}}
    assert PrivacyPolicy().protect(forged)["metadata"] == {SENSITIVE_DATA: {"tagged": ["e-mail"]}}


def test_policy_is_one_action_or_two() -> None:
    assert PrivacyPolicy.parse("tag") == PrivacyPolicy("tag", "tag")
    assert PrivacyPolicy.parse("redact, off") == PrivacyPolicy("redact", "off")
    for text in ("", "redact,tag,off", "mask"):
        with pytest.raises(InvalidArgument, match="privacy"):
            PrivacyPolicy.parse(text)
