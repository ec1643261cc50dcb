"""A setting is declared once: the command line, the API, live changes and the reference pages are derived from it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import skitter
from skitter.errors import SettingsError
from skitter.settings import FrontierSettings, Settings, api_settings, build_settings, declarations

PACKAGE = Path(skitter.__file__).parent

DUMMY = """\
    brightness: Annotated[float, Setting(
        "Brightness of the lamp.", unit="s", min=0, max=9, cli="--brightness LUX", live=True, api=True,
    )] = 2.5
    max_redirects: Annotated"""

LOOK = """
import json, sys
import click
from skitter.cli.crawl import run
from skitter.cli.reference import commands_page, settings_page
from skitter.errors import SettingsError
from skitter.frontier.options import SettingsChanges
from skitter.service.config import check_settings
from skitter.settings import build_settings

check_settings({"brightness": 3}, "settings")
option = next(option for option in run.params if option.name == "brightness")
try:
    build_settings({"brightness": 10})
    refused = ""
except SettingsError as error:
    refused = error.field
print(json.dumps({
    "option": option.opts, "help": option.help, "refused": refused,
    "live": SettingsChanges({"brightness": "3"}).settings,
    "settings": settings_page().partition("### brightness\\n\\n")[2].splitlines()[:3],
    "commands": "--brightness LUX" in commands_page(),
}))
"""


def test_a_setting_that_is_declared_in_one_place_is_found_everywhere(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "skitter", ignore=shutil.ignore_patterns("__pycache__"))
    declared = tmp_path / "skitter" / "settings.py"
    before = declared.read_text("utf-8")
    assert before.count("    max_redirects: Annotated") == 1
    declared.write_text(before.replace("    max_redirects: Annotated", DUMMY), "utf-8")
    process = subprocess.run(
        [sys.executable, "-c", LOOK], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    assert found == {
        "settings": [
            "Brightness of the lamp.", "",
            "Default: `2.5` · type: `float`, seconds, at least 0, at most 9 · option: `--brightness LUX` · **live** · **API**",
        ],
        "option": ["--brightness"], "help": "Brightness of the lamp. [default: 2.5]", "refused": "brightness",
        "live": {"brightness": 3.0}, "commands": True,
    }  # fmt: skip


@pytest.mark.parametrize("declared", declarations(Settings).values(), ids=lambda declared: declared.name)
def test_each_declaration_is_complete(declared):
    assert declared.setting.help[0] in f"`{declared.setting.help[0].upper()}"
    assert declared.setting.help.endswith(".")
    assert build_settings({declared.name: declared.default}) == Settings()
    for bound, wrong in ((declared.setting.above, 0), (declared.setting.min, -1), (declared.setting.max, 1)):
        if bound is not None:
            with pytest.raises(SettingsError) as caught:
                Settings(**{declared.name: bound + wrong})
            assert caught.value.field == declared.name


def test_the_settings_of_a_frontier_are_settings():
    assert set(FrontierSettings.__struct_fields__) < set(Settings.__struct_fields__)


def test_api_users_may_not_set_files_code_proxies_or_keys():
    dangerous = {
        "fetcher", "cache_dir", "ca_file", "cookie_file", "cookies", "proxies", "proxy", "sessions", "user_agents", "verify_tls",
        "seed_keys", "group_counter_prefix", "durability", "seen_memory_limit",
    }  # fmt: skip
    assert not dangerous & set(api_settings())
