"""Modules of a managed crawl: registration, selection, and primary domains."""

from collections import Counter

import pytest

from skitter.errors import UsageError
from skitter.frontends.lifecycle import (
    Analyzer,
    Counts,
    Downloader,
    ModuleKind,
    Pipeline,
    least_busy,
    lowest_score,
    primary_domain,
    seed_score,
)
from skitter.frontends.lifecycle.modules import ModuleRegistry

# --- registration ------------------------------------------------------------------------------------------


def test_ids_are_assigned_in_order_and_a_used_one_is_rejected():
    registry = ModuleRegistry([Downloader(), Downloader(id="downloader-3"), Analyzer(list)])
    assert [module.id for module in registry.all()] == ["analyzer-1", "downloader-1", "downloader-3"]
    assert registry.register(Downloader()) == "downloader-4"
    for taken in (Downloader(id="analyzer-1"), registry.get("downloader-1")):
        with pytest.raises(UsageError, match="already"):
            registry.register(taken)
    assert len(registry.all()) == 4


def test_an_invalid_or_empty_module_is_rejected():
    with pytest.raises(UsageError, match="NoneType"):
        ModuleRegistry([None])
    for make in (Analyzer, Pipeline, lambda: Analyzer(3), lambda: Pipeline("x"), lambda: Downloader(3)):
        with pytest.raises(UsageError):
            make()


def test_the_last_of_a_kind_stays_so_that_no_page_is_without_a_module():
    registry = ModuleRegistry([Downloader(id="a"), Downloader(id="b")])
    assert registry.unregister("a").id == "a"
    with pytest.raises(UsageError, match="last downloader"):
        registry.unregister("b")
    with pytest.raises(UsageError, match="'a'"):
        registry.unregister("a")
    assert [module.id for module in registry.of(ModuleKind.DOWNLOADER)] == ["b"]


# --- balance -----------------------------------------------------------------------------------------------


def worked(name, *, called=0, handling=0, setbacks=0):
    module = Downloader(id=name)
    module.counts = Counts(called=called, accepted=called, completed=called, handling=handling)
    module.failures = setbacks
    return module


def picks(registry, amount):
    return Counter(registry.pick(ModuleKind.DOWNLOADER).id for _ in range(amount))


def test_the_connection_with_the_least_in_progress_is_chosen_and_equals_take_turns():
    registry = ModuleRegistry([worked("a"), worked("b"), worked("c", handling=1)])
    assert picks(registry, 10) == {"a": 5, "b": 5}


def test_a_newcomer_takes_its_share_and_not_all():
    """In gopcp, the score is a sum since the start, so a new module gets all requests until it has caught up."""
    modules = [worked("old", called=10_000), worked("new")]
    assert picks(ModuleRegistry(modules), 100) == {"old": 50, "new": 50}


def test_a_module_that_fails_at_once_does_not_look_idle():
    registry = ModuleRegistry([worked("failing", setbacks=3), worked("busy", handling=2)])
    assert picks(registry, 10) == {"busy": 10}
    registry.get("busy").counts.handling = 9
    registry.get("failing").failures = 1000
    assert picks(registry, 1) == {"failing": 1}  # under load it is tried again


def test_a_failure_counts_until_the_next_success():
    module = Downloader(id="a")
    for _ in range(2):
        with pytest.raises(ValueError, match="no"), module.working():
            assert module.counts.handling == 1
            raise ValueError("no")
    assert (module.failures, module.counts) == (2, Counts(called=2))
    with module.working():
        pass
    assert (module.failures, module.counts) == (0, Counts(called=3, completed=1))


def test_the_score_of_the_seed_or_one_of_your_own_may_choose():
    assert seed_score(Counts(called=1, accepted=1, completed=1, handling=1)) == 23
    modules = [worked("one", called=10), worked("two", called=1)]
    assert picks(ModuleRegistry(modules, lowest_score()), 10) == {"two": 10}
    assert picks(ModuleRegistry(modules, lowest_score(lambda counts: -counts.called)), 10) == {"one": 10}
    assert least_busy(modules).id == "one"


# --- primary domains -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("http://news.bbc.co.uk/x", "bbc.co.uk"), ("news.bbc.co.uk:8080", "bbc.co.uk"),
        ("WWW.Example.COM", "example.com"), ("https://a.b.example.museum/", "example.museum"),
        ("cs.tsinghua.edu.cn", "tsinghua.edu.cn"), ("127.0.0.1", "127.0.0.1"), ("http://127.0.0.1:81/", "127.0.0.1"),
        ("http://[::1]:8080/", "[::1]"), ("http://[2001:DB8::1]/", "[2001:db8::1]"), ("localhost:8000", "localhost"),
        ("www.bücher.example", "xn--bcher-kva.example"), ("user.github.io", "user.github.io"),
    ],
)  # fmt: skip
def test_the_primary_domain_is_the_registered_domain(text, domain):
    assert primary_domain(text) == domain


@pytest.mark.parametrize(
    "text", ["", "co.uk", "http://edu.cn/", "github.io", "http://", "a b", "http://h:99999/"]
)
def test_a_text_without_a_primary_domain_is_rejected(text):
    with pytest.raises(UsageError) as refused:
        primary_domain(text)
    assert refused.value.remedy
    assert "has no host" not in str(refused.value)
