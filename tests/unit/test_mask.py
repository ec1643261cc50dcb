"""Redactor: no secret is left in displayed text, and all other text is unchanged."""

import pytest

from skitter._utils.redaction import Redactor, secrets_among


@pytest.mark.parametrize(
    "text",
    [
        "redis://:hidden@h/0", "see http://me:hidden@h/x and postgresql://u:hidden@h/d?a=1, both", "at https://h/?api_key=hidden&page=2",
        "nats://hidden@h/topic", "Authorization: Bearer hidden", "{'Authorization': 'Basic hidden'}", '"authorization":"Bearer hidden"',
        "headers Proxy-Authorization: Basic hidden", "user=me&password=hidden&go=1", "{'password': 'hidden', 'user': 'me'}",
        "password=b'hidden'", 'PASSWORD = "hidden one"', "my_token=hidden", "X_API_KEY=hidden", "access_key='hidden'", "authorization=Bearer hidden",
        "sent Bearer hidden-hidden-hidden", "nsq://h/t?state=redis%3A%2F%2Fme%3Ahidden%40h",
    ],
)  # fmt: skip
def test_a_secret_is_recognised_by_its_place_and_masked(text):
    masked = Redactor().of_text(text)
    assert "hidden" not in masked
    assert "***" in masked


@pytest.mark.parametrize(
    "text",
    [
        "http://h:8080/a@b?page=2#x", "me@example.org wrote to http://h/ and you@example.org", "Unexpected token: <", "basic understanding",
        "the bearer of news", "passwords are kept nowhere", "a key: value", "SyntaxError: invalid token (line 3)", "",
    ],
)  # fmt: skip
def test_other_text_stays_as_it_is(text):
    assert Redactor().of_text(text) == text


def test_secrets_of_the_environment_and_of_urls_are_masked_everywhere(tmp_path):
    (tmp_path / "word").write_text("from-a-file\n")
    environment = {
        "SKITTER_FRONTIER_PASSWORD": "p/w d", "SKITTER_SERVE_TOKEN": "token-of-serve", "AWS_SECRET_ACCESS_KEY": "awsaws",
        "DB_PASSWORD_FILE": str(tmp_path / "word"), "OTHER_PASSWORD_FILE": str(tmp_path / "none"), "PIP_INDEX_URL": "https://u:of-index@h/",
        "HOME": "/home/me", "PIN_PASSWORD": "123",
    }  # fmt: skip
    mask = Redactor.of_process(
        environment, ["redis://:of%2Fstore@h/0", "s3://b/x?key=id-of-key&secret=of-s3"]
    )
    for secret in (
        "p/w d", "p%2Fw%20d", "p/w%20d", "token-of-serve", "awsaws", "from-a-file", "of-index", "of/store", "of%2Fstore", "id-of-key", "of-s3",
    ):  # fmt: skip
        assert mask.of_text(f"said <{secret}>, bare") == "said <***>, bare", secret
    assert mask.of_text("/home/me 123") == "/home/me 123"


def test_a_secret_that_is_a_prefix_of_another_is_masked_completely():
    assert Redactor(["hidden", "hidden-more"]).of_text("hidden-more hidden") == "*** ***"
    assert Redactor(["word"]).knowing(["more"]).of_text("word more") == "*** ***"


def test_values_are_masked_to_their_last_depth():
    value = {"a": ["http://u:hidden@h/", {"password": "x", "n": 1}], "ok": None, "u:hidden": 2}
    masked = Redactor(["hidden"]).of_value(value)
    assert masked == {"a": ["http://u:***@h/", {"password": "***", "n": 1}], "ok": None, "u:***": 2}


def test_secrets_of_a_job_are_found_by_their_names():
    given = {
        "user": "me",
        "password": "of-me",
        "headers": {"Authorization": "Bearer of-api", "Accept": "x"},
        "token": 5,
    }
    assert secrets_among(given) == ["of-me", "of-me", "Bearer of-api", "of-api"]


@pytest.mark.parametrize(
    "text",
    ["a-", "://", "http://", "password", "password ", "a.a://", "'password': ", "authorization:", "key=", "http://h/?key=", "x://a:", "Bearer ", " ", "@"],
)  # fmt: skip
def test_the_time_of_masking_is_linear(text):
    long = f"password http://h/?{text * (600_000 // len(text))}@"  # with quadratic time, it would exceed the test's timeout
    assert Redactor(["hidden"]).of_text(long)
