"""User agents: lists, files, and sets made up by browserforge."""

import re
import sys

import pytest

from skitter.errors import SettingsError
from skitter.fetch.identity.contract import SourceError
from skitter.fetch.identity.user_agents import AgentFile, AgentList, RandomAgents, options_of
from skitter.request import Request

PAGE = Request("http://site.test/")


def drawn(agents, times=100, request=PAGE):
    return {tuple(agents.headers(request).items()) for _ in range(times)}


def test_a_list_gives_each_of_its_texts_and_header_sets():
    german = {"user-agent": "B", "Accept-Language": "de"}
    agents = AgentList([" A ", german])
    assert drawn(agents) == {(("User-Agent", "A"),), tuple(german.items())}


def test_a_named_session_always_gets_the_same_set():
    agents = AgentList([str(number) for number in range(50)])
    assert len(drawn(agents, request=PAGE.replace(session="anna"))) == 1
    assert len({min(drawn(agents, 1, PAGE.replace(session=str(number)))) for number in range(100)}) > 10


@pytest.mark.parametrize("agents", [[], [""], [7], [{"Accept": "x"}]])
def test_a_list_of_something_else_is_refused(agents):
    with pytest.raises(SettingsError):
        AgentList(agents)


async def test_a_file_has_one_a_line(tmp_path):
    path = tmp_path / "agents.txt"
    path.write_text("# ours\nA/1 (x; y)\n\nB/2\n")
    agents = AgentFile(path)
    await agents.open()
    assert drawn(agents) == {(("User-Agent", "A/1 (x; y)"),), (("User-Agent", "B/2"),)}
    with pytest.raises(SourceError, match=r"nowhere\.txt"):
        await AgentFile(tmp_path / "nowhere.txt").open()


async def test_made_up_sets_are_whole_and_fit_together():
    agents = RandomAgents({"browser": "chrome+edge", "os": "windows"})
    await agents.open()
    sets = [dict(found) for found in drawn(agents)]
    assert len(sets) > 1
    for headers in sets:
        lower = {name.lower(): value for name, value in headers.items()}
        assert "Windows NT 10.0" in lower["user-agent"]
        assert lower["sec-ch-ua-platform"] == '"Windows"'
        version = re.search(r"Chrome/(\d+)", lower["user-agent"])[1]
        assert f'v="{version}"' in lower["sec-ch-ua"]
        assert (lower["sec-fetch-site"], lower["sec-fetch-mode"]) == ("none", "navigate")
        assert (lower["sec-fetch-user"], lower["sec-fetch-dest"]) == ("?1", "document")
        assert "text/html" in lower["accept"]
        assert "accept-encoding" not in lower  # the fetcher says what it can undo


async def test_without_options_they_are_of_desktops():
    agents = RandomAgents()
    await agents.open()
    assert not [text for found in drawn(agents, 300) for _, text in found if "Mobile" in text]


@pytest.mark.parametrize("options", [{"os": "beos"}, {"browser": "mosaic"}])
async def test_a_value_that_browserforge_does_not_know_is_an_error_at_the_start(options):
    with pytest.raises(SourceError, match=r"beos|mosaic"):
        await RandomAgents(options).open()


def test_an_option_that_does_not_exist_is_refused():
    with pytest.raises(SettingsError, match="colour") as caught:
        RandomAgents(options_of("os=linux,colour=red"))
    assert "locale" in caught.value.remedy
    with pytest.raises(SettingsError, match="'linux'"):
        options_of("linux")


async def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "browserforge.headers", None)
    with pytest.raises(SourceError, match="browserforge") as caught:
        await RandomAgents().open()
    assert "skitter[agents]" in caught.value.remedy
