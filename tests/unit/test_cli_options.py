"""Options that several commands share."""

import os

import click
import pytest

from skitter.cli.crawl import crawl, run
from skitter.cli.options import workers_option
from skitter.cli.tables import change_texts


@click.command()
@workers_option
def number_of(workers):
    return workers


def chosen(text):
    return number_of.main(["--workers", text], standalone_mode=False)


@pytest.mark.parametrize(("processors", "workers"), [(1, 1), (2, 1), (3, 2), (5, 4), (64, 4)])
def test_the_number_of_workers_follows_the_processors_that_may_be_used(monkeypatch, processors, workers):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(processors)), raising=False)
    assert chosen("auto") == workers


@pytest.mark.parametrize("text", ["0", "-1", "x", "Auto", ""])
def test_other_values_than_numbers_and_auto_are_refused(text):
    with pytest.raises(click.BadParameter):
        chosen(text)


def test_a_number_is_taken_as_it_is():
    assert chosen("7") == 7


def test_changed_settings_are_shown_with_all_digits():
    changes = {
        "max_pages": 1_234_567,
        "max_bytes": 10**15 + 1,
        "delay": 0.1,
        "jitter": 2.0,
        "max_items": None,
    }
    assert change_texts(changes) == [
        "max_pages=1234567", "max_bytes=1000000000000001", "delay=0.1", "jitter=2", "max_items=none",
    ]  # fmt: skip


@pytest.mark.parametrize(("command", "default"), [(crawl, "host"), (run, "any")])
def test_the_help_of_a_command_shows_its_own_default_of_a_setting(command, default):
    (option,) = [option for option in command.params if option.name == "scope"]
    assert option.help.endswith(f"[default: {default}]")
