"""No secret survives: by value in every spelling, by shape, and nothing else is touched.

Tokens are put together at run time, so that this file holds none.
"""

from __future__ import annotations

import base64
import json
import pickle
import string
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harness.redact import PUBLIC_VALUES, Redactor, is_secret_name
from harness.secret_shapes import credential_shapes

PROPERTY = settings(derandomize=True, deadline=None, max_examples=300)
BODY = "A1b2C3d4E5f6G7h8I9j0"
VALUE = "p/ss wörd+%&=?\"'\\end"
ENVIRONMENT = {"TINKER_API_KEY": VALUE, "PATH": "/usr/bin", "MODAL_PROFILE": "main"}


def redactor(**environ: str) -> Redactor:
    return Redactor.from_environment(environ)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("TINKER_API_KEY", True),
        ("tinker_api_key", True),
        ("HF_TOKEN", True),
        ("HF_HOME", True),
        ("GITHUB_TOKEN_FILE", True),
        ("MODAL_TOKEN_ID", True),
        ("MODAL_PROFILE", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("CLOUDFLARE_ACCESS_CLIENT_SECRET", True),
        ("DB_PASSWORD", True),
        ("PATH", False),
        ("TOKENIZERS_PARALLELISM", False),
        ("KEYBOARD", False),
        ("SHELF_HF", False),
        ("TINKER_BASE_URL", False),
    ],
)
def test_variables_are_secret_by_name(name: str, secret: bool) -> None:
    assert is_secret_name(name) is secret
    found = redactor(**{name: "value-of-it"}).redact("a value-of-it b")
    assert found == (f"a [redacted:{name}] b" if secret else "a value-of-it b")


SPELLINGS = {
    "plain": VALUE,
    "base64": base64.b64encode(VALUE.encode()).decode(),
    "base64 url-safe": base64.urlsafe_b64encode(VALUE.encode()).decode(),
    "base64 unpadded": base64.b64encode(VALUE.encode()).decode().rstrip("="),
    "quoted": quote(VALUE),
    "quoted whole": quote(VALUE, safe=""),
    "quoted plus": quote_plus(VALUE),
    "quoted lower case": quote(VALUE, safe="").lower(),
    "json": json.dumps(VALUE),
    "json unicode": json.dumps(VALUE, ensure_ascii=False),
    "repr": repr(VALUE),
}


@pytest.mark.parametrize("spelling", sorted(SPELLINGS))
def test_every_spelling_of_a_value_is_removed(spelling: str) -> None:
    written = SPELLINGS[spelling]
    found = Redactor.from_environment(ENVIRONMENT).redact(f"before {written} after")
    assert "[redacted:TINKER_API_KEY]" in found
    assert found.startswith("before ")
    assert found.endswith(" after")
    rest = found.replace("[redacted:TINKER_API_KEY]", "")
    assert len(rest) <= len("before  after") + 2, f"{spelling}: left over {rest!r}"


@pytest.mark.parametrize("before", [b"", b"u", b"us", b"user:", b"user::"])
@pytest.mark.parametrize("after", [b"", b"@", b"@h", b"@host"])
def test_base64_is_found_at_any_alignment(before: bytes, after: bytes) -> None:
    secret = b"correct-horse-7"
    text = base64.b64encode(before + secret + after).decode()
    found = redactor(X_KEY=secret.decode()).redact(f"Basic {text}.")
    assert "[redacted:" in found, f"{before!r} + secret + {after!r} survived as {text}"
    windows = {secret[at : at + 3] for at in range(len(secret) - 2)}
    for piece in found.removeprefix("Basic ").rstrip(".=").split("[redacted:X_KEY]"):
        for skip in range(4):
            whole = piece[skip : skip + (len(piece) - skip) // 4 * 4]
            left = base64.b64decode(whole)
            assert not any(window in left for window in windows), f"{left!r} left of {secret!r}"


@PROPERTY
@given(
    st.lists(
        st.text(st.characters(codec="utf-8"), min_size=6, max_size=24), min_size=1, max_size=3
    ),
    st.lists(st.integers(0, 2), max_size=6),
    st.lists(st.text(max_size=5), min_size=7, max_size=7),
)
def test_no_value_survives_in_any_text(
    secrets: list[str], order: list[int], between: list[str]
) -> None:
    assume(all(len(secret.strip()) >= 6 for secret in secrets))
    assume(not PUBLIC_VALUES & {secret.strip().lower() for secret in secrets})
    environ = {f"S{at}_KEY": secret for at, secret in enumerate(secrets)}
    text = between[-1]
    for at, filler in zip(order, between, strict=False):
        text += secrets[at % len(secrets)] + filler
    found = Redactor.from_environment(environ)
    once = found.redact(text)
    gaps = once
    for name in (*environ, *("signed_query", "url_password")):
        gaps = gaps.replace(f"[redacted:{name}]", "\0")
    for secret in secrets:
        assert secret.strip() not in gaps, f"{secret!r} survived in {once!r}"
    assert found.redact(once) == once, "redacting twice changed the text again"


@PROPERTY
@given(st.text(alphabet=string.ascii_letters + string.digits + " .,:;()[]{}\n-_", max_size=200))
def test_text_without_secrets_is_returned_as_it_is(text: str) -> None:
    assume(not credential_shapes(text))
    assert redactor(HF_TOKEN="\u2603" * 8, PATH=text).redact(text) == text


def test_overlapping_secrets_leave_no_rest() -> None:
    found = redactor(A_KEY="abcdef123", B_KEY="123xyz456").redact("<abcdef123xyz456>")
    assert found == "<[redacted:A_KEY]>"
    assert redactor(A_KEY="abcabc" * 2).redact("<" + "abc" * 7 + ">") == "<[redacted:A_KEY]>"
    longer = redactor(A_KEY="secret-one", B_KEY="secret-one-and-more")
    assert longer.redact("secret-one-and-more") == "[redacted:B_KEY]"


def test_short_values_stay_and_white_space_around_a_value_does_not_hide_it() -> None:
    assert redactor(A_KEY="12345").redact("12345") == "12345"
    assert redactor(A_KEY=" 123456\n").redact("x123456y") == "x[redacted:A_KEY]y"
    assert redactor(A_KEY="", B_KEY=" ").redact("a b") == "a b"


def test_a_key_of_several_lines_is_removed_line_by_line() -> None:
    lines = ["line-one-" + BODY, "line-two-" + BODY]
    assert redactor(A_KEY="\n".join(lines)).redact(lines[1]) == "[redacted:A_KEY]"


def test_one_value_under_two_names_has_the_first_name() -> None:
    environ = {"B_KEY": "same-value", "A_KEY": "same-value"}
    assert Redactor.from_environment(environ).redact("same-value") == "[redacted:A_KEY]"


def test_a_value_that_is_a_word_of_the_placeholder_is_stable() -> None:
    found = redactor(MODAL_WORD="redacted")
    once = found.redact("a redacted b")
    assert once == "a [redacted:MODAL_WORD] b"
    assert found.redact(once) == once


def test_a_secret_inside_a_foreign_placeholder_is_not_safe_there() -> None:
    found = redactor(A_KEY="hidden77").redact("[redacted:hidden77]")
    assert found == "[redacted:[redacted:A_KEY]]"


SHAPED = {
    "tinker_key": ["tml-" + BODY, "tml-" + BODY + "_-" + BODY],
    "hugging_face_token": ["hf_" + BODY],
    "modal_token": ["ak-" + BODY, "as-" + BODY, "wk-" + BODY, "ws-" + BODY],
    "sk_key": ["sk-" + BODY, "sk-proj-" + BODY],
    "github_token": ["ghp_" + BODY, "gho_" + BODY, "github_pat_" + BODY],
    "aws_key_id": ["AKIA" + "ABCDEFGH12345678"],
    "google_api_key": ["AIza" + (BODY * 2)[:35]],
    "slack_token": ["xoxb-" + BODY],
    "jwt": ["eyJ" + BODY + "." + BODY + "." + BODY, "eyJ" + BODY + "." + BODY],
}
CONTEXTS = [
    "{}",
    "key={}",
    '{{"a": "{}"}}',
    "Bearer {}\n",
    "line\\n{}",
    "q%3D{}",
    "({}),",
    "é {} é",
]


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", sorted(SHAPED))
def test_known_token_shapes_are_removed_in_every_context(name: str, context: str) -> None:
    for token in SHAPED[name]:
        found = redactor().redact(context.format(token))
        assert found == context.format(f"[redacted:{name}]"), f"{name} in {context!r}"


@pytest.mark.parametrize(
    "text",
    [
        "tml-renderers==0.2.1",
        "a task-relevant1234567890123456 word",
        "risk-adjusted-returns-in-2026-and-later",
        "sk-learn and sk-image-classification",
        "hf_hub_offline=1",
        "as-yet-undetermined",
        "eyJ is how Base64 of an object begins",
        "AKIAshort",
        "0f" * 32,
        "tinker://model/weights/000040",
        "https://example.org/a?page=2&sort=asc",
        "user@example.org and http://host:8080/path",
        "Authorization: required",
        'headers = {"X-API-Key": api_key}',
        "What is 2 + 2?Key facts",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert redactor().redact(text) == text
    assert credential_shapes(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer {}", "Authorization: Bearer [redacted:auth_header]"),
        ("authorization=Basic {}==", "authorization=Basic [redacted:auth_header]"),
        ("{{'X-API-Key': '{}'}}", "{{'X-API-Key': '[redacted:auth_header]'}}"),
        ("(b'Modal-Secret', b'{}')", "(b'Modal-Secret', b'[redacted:auth_header]')"),
        ('{{\\"Modal-Key\\": \\"{}\\"}}', '{{\\"Modal-Key\\": \\"[redacted:auth_header]\\"}}'),
        ("http://me:{}@host/", "http://me:[redacted:url_password]@host/"),
    ],
)
def test_headers_and_url_passwords_are_removed(text: str, expected: str) -> None:
    assert redactor().redact(text.format(BODY)) == expected.format()


SIGNED = [
    "X-Amz-Algorithm=a&X-Amz-Credential=b%2Fc&X-Amz-Signature=00ff",
    "x-goog-signature=00ff",
    "sv=2024&sig=00ff%3D",
    "Expires=1&Signature=00ff&Key-Pair-Id=K",
    "a=1\\u0026sig=00ff",
    "access_token=00ff",
    "file=a&api_key=00ff",
]


@pytest.mark.parametrize("query", SIGNED)
def test_signed_query_strings_are_removed_whole(query: str) -> None:
    found = redactor().redact(f'url "https://bucket.example/a/b?{query}" end')
    assert found == 'url "https://bucket.example/a/b?[redacted:signed_query]" end'


@pytest.mark.parametrize("query", [query for query in SIGNED if "u0026" not in query])
def test_signed_query_strings_inside_another_url_are_removed(query: str) -> None:
    nested = redactor().redact(f"to=https%3A%2F%2Fb.example%2Fa%3F{quote(query, safe='')} end")
    assert nested == "to=https%3A%2F%2Fb.example%2Fa%3F[redacted:signed_query] end"


def test_json_values_are_redacted_as_values_and_numbers_are_never_touched() -> None:
    found = redactor(A_TOKEN_LIMIT="100000").redact_json(
        {"tokens": 100000, "text": "at 100000", "k100000": [100000.0, None, True, "x", ("100000",)]}
    )
    assert found == {
        "tokens": 100000,
        "text": "at [redacted:A_TOKEN_LIMIT]",
        "k[redacted:A_TOKEN_LIMIT]": [100000.0, None, True, "x", ["[redacted:A_TOKEN_LIMIT]"]],
    }


def test_redacted_text_passes_as_clean() -> None:
    texts = [token for tokens in SHAPED.values() for token in tokens]
    texts += [f"https://bucket.example/a?{query}" for query in SIGNED]
    texts += [f"http://me:{BODY}@host/", f"Authorization: Bearer {BODY}"]
    for text in texts:
        assert credential_shapes(text), f"{text!r} is the example of a credential"
        assert credential_shapes(redactor().redact(text)) == [], redactor().redact(text)
    assert credential_shapes("https://e.example/?token=[redacted:HF_TOKEN]&page=2") == []


def test_a_redactor_does_not_show_what_it_hides() -> None:
    found = redactor(A_KEY="very-hidden-7")
    assert "very-hidden-7" not in repr(found)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(found)


@pytest.mark.parametrize(
    "text",
    ["tml-" * 50_000, "eyJ" * 60_000, "://a:" * 40_000, "?a=" * 60_000, "X-API-Key: " * 20_000],
)
def test_hostile_repetition_does_not_blow_up(text: str) -> None:
    # Quadratic time would take minutes here; the run's own limit is what would stop it.
    assert isinstance(redactor(A_KEY="aaaaaa").redact(text + "a" * 200_000), str)
