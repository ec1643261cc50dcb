"""The examples of a renewed login and of two accounts, on a site whose sessions expire after some pages."""

import json

from cli_command import skitter
from manual import ROOT
from skitter.testing import Answer

EXAMPLES = ROOT / "examples"
FORM = b"<form method=post action=/login><input name=user><input name=password></form>"
LINKS = b"".join(b"<a href=/members/%d>a</a>" % number for number in range(5))


class Members:
    def __init__(self, pages_per_session):
        self.pages_per_session = pages_per_session
        self.left = {}
        self.logins = 0

    def __call__(self, visit):
        if visit.target == "/login":
            return self.log_in() if visit.method == "POST" else Answer(FORM)
        session = visit.headers.get("cookie", "")
        if visit.target == "/members/" and session in self.left:
            # The page after the login, even if requests in flight have used up the new session.
            return Answer(LINKS)
        if not self.left.get(session):
            return Answer(status=302, headers={"Location": "/login"})
        self.left[session] -= 1
        return Answer(LINKS)

    def log_in(self):
        self.logins += 1
        self.left[f"s={self.logins}"] = self.pages_per_session
        return Answer(status=302, headers={"Location": "/members/", "Set-Cookie": f"s={self.logins}; Path=/"})


def items_of(name, serve, tmp_path, site):
    server = serve(site)
    address = server.url.rstrip("/")
    ran = skitter(
        "run", EXAMPLES / name, "-a", f"site={address}", "-o", "items.jsonl", "--no-robots", "--delay", 0, "--fail-on-errors",
        cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    text = (tmp_path / "items.jsonl").read_text().replace(address, "")
    return [json.loads(line) for line in text.splitlines()]


PATHS = {"/members/", *(f"/members/{number}" for number in range(5))}


def test_a_login_that_expires_loses_no_page(serve, tmp_path):
    site = Members(pages_per_session=3)
    items = items_of("relogin.py", serve, tmp_path, site)
    assert {item["url"] for item in items} == PATHS
    assert site.logins > 1


def test_two_accounts_see_all_pages_each(serve, tmp_path):
    site = Members(pages_per_session=100)
    items = items_of("accounts.py", serve, tmp_path, site)
    assert site.logins == 2
    assert {(item["user"], item["url"]) for item in items} == {
        (user, path) for user in ("ann", "bob") for path in PATHS
    }
